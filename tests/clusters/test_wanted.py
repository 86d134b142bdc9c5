"""What `pareto` is asked for: limits of a step, the aim, and what does not go together."""

import pytest

from formulations.errors import PlannerError
from formulations.instance.instance import Family
from solver.clusters.wanted import MOST_USD, Wanted
from tests.small_families import small_family

FAMILY = small_family(0)
BATCH = FAMILY.instance.workload.global_batch


def test_limits_of_a_training_are_those_of_a_step() -> None:
    """10 steps and a sequence more are 11 steps: 22 USD are 2 a step, 33 s are 3."""
    for budget_usd, deadline_s, aim in (
        (None, None, "front"),
        (22, None, "time"),
        (None, 33, "money"),
        (22, 33, "front"),
    ):
        wanted = Wanted(budget_usd=budget_usd, deadline_s=deadline_s, sequences=10 * BATCH + 1)
        family, found_aim = wanted.family(FAMILY, "x.yaml")
        limits = family.instance.limits
        assert (found_aim, family.instance.objective.steps) == (aim, 11)
        assert limits.max_cost_usd_per_step == (budget_usd and 2)
        assert limits.max_step_time_s == (deadline_s and 3)
    subsets, aim = Wanted(subsets=True).family(FAMILY, "x.yaml")
    assert (subsets.fewest, aim) == ((0,) * len(FAMILY.fewest), "subsets")


def priced(price: float | None) -> Family:
    groups = tuple(group.but(price_usd_per_hour=price) for group in FAMILY.instance.cluster.groups)
    return FAMILY.but(instance={"cluster": {"groups": groups}})


def test_what_does_not_go_together_is_refused() -> None:
    for wanted, family, words in (
        (Wanted(budget_usd=1), FAMILY, "name its --sequences"),
        (Wanted(budget_usd=2 * MOST_USD, sequences=1), FAMILY, "at most 1,000,000,000,000,000"),
        (Wanted(), FAMILY.but(fewest=FAMILY.most), "x.yaml: one cluster"),
        (Wanted(), priced(0), "x.yaml cluster.groups: no price"),
    ):
        with pytest.raises(PlannerError, match=words):
            wanted.family(family, "x.yaml")
    for limit in ({"budget_usd": 1.0}, {"deadline_s": 1.0}, {"sequences": 1}):
        with pytest.raises(PlannerError, match="--subsets is of time"):
            Wanted(subsets=True, **limit)
