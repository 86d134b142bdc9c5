"""Why there is no plan, and what would help: every named change is tried by brute force."""

import re

import pytest

from formulations.costs.tables import build_tables
from formulations.instance import Instance, SearchSpace
from formulations.space import configs
from formulations.space.configurations import node_vectors
from solver.interrupt import TimeUp
from solver.search import feasibility_relaxation
from solver.search.driver import solve
from solver.search.feasibility_relaxation import (
    MEMORY_STEP_GIB,
    explain,
    relaxations,
    with_memory,
)
from tests.brute_force import optimum_ns
from tests.certified_cases import instance
from tests.small_instances import random_instance


def has_plan(one: Instance) -> bool:
    """Whether any split, order and share of any configuration fits memory."""
    return any(optimum_ns(build_tables(one, config)) is not None for config in configs(one))


def amount(text: str, pattern: str) -> float:
    """The number at {} of a remedy."""
    match = re.search(pattern.replace("{}", r"([0-9.]+)"), text)
    assert match is not None, text
    return float(match[1])


#: Seeds of small instances, mixed and not, and the GiB per GPU to take away so that nothing fits.
TOO_SMALL = [
    (5, 0.3),
    (6, 0.8),
    (12, 0.0),
    (15, 0.8),
    (21, 0.3),
    (38, 0.3),
    (42, 0.0),
    (46, 0.6),
    (47, 0.0),
    (59, 0.3),
    (68, 0.0),
]


@pytest.mark.parametrize(("seed", "less_gib"), TOO_SMALL)
def test_named_memory_is_enough_and_a_step_less_is_not(seed: int, less_gib: float) -> None:
    """With the memory named there is a plan, with 1/16 GiB less on every GPU there is none."""
    small = with_memory(random_instance(seed), -less_gib)
    found = solve(small).infeasibility
    assert found is not None
    assert found.constraint.startswith("memory: ")
    more = amount(found.remedy, "^{} GiB more memory on every GPU")
    assert has_plan(with_memory(small, more))
    assert not has_plan(with_memory(small, more - MEMORY_STEP_GIB))


@pytest.mark.parametrize(("seed", "less_gib"), TOO_SMALL)
def test_choices_named_are_those_that_give_a_plan(seed: int, less_gib: float) -> None:
    """Every choice left out of `search` is named if and only if it alone gives a plan."""
    small = with_memory(random_instance(seed), -less_gib)
    small = small.but(search={"recompute": ("none",), "zero": (0,)})
    if has_plan(small):
        pytest.skip("fits without")
    remedies = explain(small).remedy.split(", or ")
    for text, allowed in relaxations(small):
        assert (text in remedies) == has_plan(allowed), text


def test_smallest_step_time_limit_is_named() -> None:
    """The best step time is a limit that can be kept, and a nanosecond less is none."""
    best_s = solve(instance()).step_time_ns or 0
    tight = instance().but(limits={"max_step_time_s": best_s / 2e9})
    found = solve(tight).infeasibility
    assert found is not None
    assert found.constraint.startswith("limits: ")
    limit_s = amount(found.remedy, "limits.max_step_time: {} s")
    assert limit_s == best_s / 1e9
    assert solve(tight.but(limits={"max_step_time_s": limit_s})).plan is not None
    assert solve(tight.but(limits={"max_step_time_s": limit_s - 1e-9})).plan is None


def test_smallest_cost_limit_is_named() -> None:
    """With idle nodes the cheapest plan is sought among all choices of nodes."""
    one = instance(search=SearchSpace(micro_batch=(1, 2)))
    tight = one.but(limits={"max_cost_usd_per_step": 1e-9})
    found = solve(tight).infeasibility
    assert found is not None
    limit = amount(found.remedy, "limits.max_cost_per_step: {} USD")
    assert solve(tight.but(limits={"max_cost_usd_per_step": limit})).plan is not None
    assert solve(tight.but(limits={"max_cost_usd_per_step": limit * (1 - 1e-9)})).plan is None


def test_two_limits_that_fail_together_are_both_named() -> None:
    """Where raising one of them is not enough, the text gives what each end would need."""
    limits = {"max_step_time_s": 1e-6, "max_cost_usd_per_step": 1e-9}
    remedy = explain(instance().but(limits=limits)).remedy
    best_ns = solve(instance()).step_time_ns
    assert best_ns is not None
    assert amount(remedy, "both limits: the fastest plan takes {} s") == best_ns / 1e9
    assert amount(remedy, "the cheapest costs {} USD per step") > 1e-9


def test_bug_price_limit_named_was_that_of_the_cheapest_node() -> None:
    """Where no node may be idle, the price of all of them is needed."""
    one = instance()
    rents = [group.price_usd_per_hour for group in one.cluster.groups]
    tight = one.but(limits={"max_price_usd_per_hour": min(rents) / 2})
    limit = amount(explain(tight).remedy, "limits.max_price_per_hour: {} USD/h")
    assert limit == pytest.approx(sum(rents))
    assert solve(tight.but(limits={"max_price_usd_per_hour": limit})).plan is not None


def test_price_limit_named_pays_for_nodes_that_fit() -> None:
    """A node that is cheap but too small is passed over."""
    one = instance(search=SearchSpace(micro_batch=(1, 2)))
    cheap, dear = sorted(one.cluster.groups, key=lambda group: group.price_usd_per_hour)
    tiny = cheap.but(gpu={"memory_bytes": 1})
    poor = one.but(cluster={"groups": (tiny, dear)})
    poor = poor.but(limits={"max_price_usd_per_hour": cheap.price_usd_per_hour / 2})
    limit = amount(explain(poor).remedy, "limits.max_price_per_hour: {} USD/h")
    assert limit == dear.price_usd_per_hour


def test_degrees_that_fit_no_node_are_named() -> None:
    """Three key and value heads cannot be shared by two GPUs; a degree of 1 is what helps."""
    one = instance(search=SearchSpace(tensor_parallel=(2,)))
    found = explain(one.but(workload={"kv_heads": 3}))
    assert "the 3 key and value heads" in found.constraint
    assert found.remedy == "1 in search.tensor_parallel"


def test_without_time_nothing_is_claimed() -> None:
    """A change that was not tried is not named."""
    small = with_memory(random_instance(5), -0.3)
    assert explain(small, limit_s=0.0).remedy.startswith("no single change")


def test_bug_prices_with_float_noise_are_within_their_sum() -> None:
    """Three nodes at 0.1 USD/h cost 0.30000000000000004, which a limit of 0.3 allows."""
    one = instance(search=SearchSpace())
    group = one.cluster.groups[0].but(nodes=3, price_usd_per_hour=0.1)
    three = one.but(cluster={"groups": (group,)})
    limited = three.but(limits={"max_price_usd_per_hour": 0.3})
    assert list(node_vectors(limited)) == [(1,), (2,), (3,)]


def test_bug_remedies_outlasted_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not ask whether to stop is ended: 40 s for a limit of 2 were taken."""

    def late(one: Instance, stop: object) -> bool:
        raise TimeUp

    monkeypatch.setattr(feasibility_relaxation, "_limits_bind", late)
    found = explain(instance(), 0.0)
    assert found.constraint.startswith("memory or limits: ")
    assert found.remedy.startswith("no single change")
