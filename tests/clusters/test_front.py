"""Fronts of useful sequences: nodes on demand or on spot, chosen cluster by cluster."""

import random
from functools import cache

import pytest

from formulations.errors import PlannerError
from formulations.instance.instance import Family, Preemption
from formulations.instance.machines import Spot
from solver.clusters.front import MOST_USD, Figures, Front, Measure, Wanted
from solver.front_document import Aim, FrontDocument
from solver.verify import verify_front
from tests.oracles.preemption import all_terms
from tests.recorded import Cases, digest, recorded
from tests.seeds import one_each
from tests.small_families import points_of, priced, searched, small_family, times_by_force

#: Small families with three points or more, some on spot and some on demand.
SEEDS = (9, 40, 89)
SLOW = 1e4  #: preemptions per hour: of the largest cluster every step is made twice


def spot_family(seed: int, limit: float | None = None) -> Family:
    """Groups on demand and at a third of that on spot, taken back after a few of their tiny steps.

    Where the seed is even the second group is on spot alone.
    """
    family = small_family(seed)
    instance = family.instance
    groups = list(instance.cluster.groups)
    for j, rate in enumerate((SLOW / 4, SLOW / 10)):
        price = groups[j].price_usd_per_hour
        spot = Spot(
            price_usd_per_hour=price / 3, preemptions_per_hour=rate, only=j == 1 and seed % 2 == 0
        )
        groups[j] = groups[j].but(spot=spot)
    update = {
        "cluster": instance.cluster.but(groups=tuple(groups)),
        "objective": instance.objective.but(minimize="cost_per_useful_sequence", steps=1000),
        "limits": instance.limits.but(max_price_usd_per_hour=limit),
        "preemption": Preemption(restart_s=0.1, checkpoint_s=0.02),
    }
    return family.but(instance=instance.model_copy(update=update))


@cache
def front(seed: int = SEEDS[0], limit: float | None = None) -> FrontDocument:
    return searched(spot_family(seed, limit))


@cache
def known(seed: int, limit: float | None = None) -> set[Figures]:
    """Figures of the best plan of every cluster on all terms that there are, by brute force."""
    family = spot_family(seed, limit)
    return {
        (ns * terms.slowdown, ns * terms.useful_usd_per_hour)
        for counts, ns in times_by_force(family).items()
        if ns is not None
        for terms in all_terms(family.instance, counts)
    }


@pytest.mark.parametrize("limit", [None, 2.0])
@pytest.mark.parametrize("seed", one_each(SEEDS, 3))
def test_front_is_that_of_every_plan_on_all_terms(seed: int, limit: float | None) -> None:
    """By brute force. The limit is on terms: plans on nodes too dear on demand count, too."""
    figures = known(seed, limit)
    best = sorted(a for a in figures if not any(b < a and b[1] <= a[1] for b in figures))
    best = [a for i, a in enumerate(best) if not i or a[0] > best[i - 1][0] * (1 + 1e-9)]
    document = front(seed, limit)
    ours = sorted(points_of(Measure(document.family), document))
    assert ours == [pytest.approx(figures) for figures in best]
    checked = verify_front(document)
    assert (checked.problems, checked.complete) == ((), True)


@pytest.mark.parametrize(
    ("aim", "limit", "per_second"),
    [("time", "max_cost_usd_per_step", 3600e9), ("money", "max_step_time_s", 1e9)],
)
@pytest.mark.parametrize("seed", one_each(SEEDS, 3))
def test_limits_are_of_steps_that_are_kept(
    seed: int, aim: Aim, limit: str, per_second: float
) -> None:
    """The least time within a budget, the least money by a deadline, whatever the gap."""
    family = spot_family(seed)
    pairs = [(a, b) if aim == "time" else (b, a) for a, b in known(seed)]
    limits = sorted(b for _, b in pairs)
    for value in (limits[0] * 0.99, limits[0]):
        limited = {limit: value * (1 + 1e-9) / per_second}
        own = family.but(instance={"limits": limited})
        measure = Measure(own, aim)
        document = searched(own, measure, gap=0.2)
        checked = verify_front(document)
        assert (checked.problems, checked.complete) == ((), True)
        best = [min(a for a, b in pairs if b <= value)] if value >= limits[0] else []
        ours = {max(figures) for figures in points_of(measure, document)}
        assert sorted(ours) == [pytest.approx(figure) for figure in best]


@recorded("front")
def test_fronts_are_the_recorded_ones() -> Cases:
    """Of plans offered in turn: figures, cutoffs, and what dominates half of them."""
    for seed in SEEDS:
        free, spot = priced(small_family(seed), 0.0), spot_family(seed)
        measures = [Measure(spot), Measure(small_family(seed), "subsets"), Measure(free)]
        measures += [Measure(spot, "time"), Measure(spot, "money")]
        for number, measure in enumerate(measures):
            family, rng = measure.family, random.Random(seed)
            known = Front(measure, family.members())
            for counts in family.members():
                known.offer(counts, rng.randint(1, 10) * 10**6)
                known.offer(counts, 9 * 10**6)
            best = [[*point.counts, *point.figures] for point in known.best]
            cutoffs = [[*counts, cutoff] for counts, cutoff in known.cutoffs.items()]
            over = [known.dominating(counts, 5 * 10**6) for counts in family.members()]
            by = [point and [*point.counts] for point in over]
            reached = [
                f"{measure.reaching(counts, terms, (first, *(n * part for n in rest))):.9g}"
                for counts in family.members()
                for terms in measure.terms(counts)
                for first, *rest in [measure.figures(counts, 2e6, terms)]
                for part in (0.0, 1.0, 3.0)
            ]
            told = [measure.aim, measure.limited, best, cutoffs, by, digest(reached)]
            yield f"{seed} {number} {measure.aim}", told


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


def test_what_does_not_go_together_is_refused() -> None:
    for wanted, family, words in (
        (Wanted(budget_usd=1), FAMILY, "name its --sequences"),
        (Wanted(budget_usd=2 * MOST_USD, sequences=1), FAMILY, "at most 1,000,000,000,000,000"),
        (Wanted(), FAMILY.but(fewest=FAMILY.most), "x.yaml: one cluster"),
        (Wanted(), priced(FAMILY, 0), "x.yaml cluster.groups: no price"),
    ):
        with pytest.raises(PlannerError, match=words):
            wanted.family(family, "x.yaml")
    for limit in ({"budget_usd": 1.0}, {"deadline_s": 1.0}, {"sequences": 1}):
        with pytest.raises(PlannerError, match="--subsets is of time"):
            Wanted(subsets=True, **limit)
