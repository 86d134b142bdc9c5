"""Why there is no plan, and what would help: every named change is tried by brute force."""

import re

import pytest

from formulations.costs.tables import build_tables
from formulations.instance import Instance, SearchSpace
from formulations.space import configs
from formulations.space.configurations import node_vectors
from formulations.space.launch import runs
from solver.interrupt import TimeUp
from solver.search import feasibility_relaxation
from solver.search.driver import solve
from solver.search.feasibility_relaxation import MEMORY_STEP_GIB, explain, relaxations, with_memory
from tests.brute_force import optimum_ns
from tests.certified_cases import instance
from tests.conftest import present
from tests.recorded import Cases, recorded
from tests.seeds import one_each
from tests.small_instances import random_instance, widened


def has_plan(one: Instance) -> bool:
    return any(optimum_ns(build_tables(one, config)) is not None for config in configs(one))


def amount(text: str, pattern: str) -> float:
    """The number at {} of a remedy."""
    match = present(re.search(pattern.replace("{}", r"([0-9.]+)"), text))
    return float(match[1])


#: Seeds of small instances, mixed and not, and the GiB per GPU to take away so that nothing fits.
TOO_SMALL: list[object] = [
    *[(5, 0.3), (12, 0.0), (15, 0.8), (6, 0.8), (21, 0.3), (38, 0.3)],
    *[(42, 0.0), (46, 0.6), (47, 0.0), (59, 0.3), (68, 0.0)],
]


@pytest.mark.parametrize("case", one_each(TOO_SMALL, 6))
def test_named_changes_are_those_that_give_a_plan(case: tuple[int, float]) -> None:
    """With the memory named there is a plan, with 1/16 GiB less on every GPU there is none.

    Every choice left out of `search` is named if and only if it alone gives a plan.
    """
    small = with_memory(random_instance(case[0]), -case[1])
    infeasibility = present(solve(small).infeasibility)
    assert infeasibility.constraint.startswith("memory: ")
    more = amount(infeasibility.remedy, "^{} GiB more memory on every GPU")
    assert has_plan(with_memory(small, more))
    assert not has_plan(with_memory(small, more - MEMORY_STEP_GIB))
    small = small.but(search={"recompute": ("none",), "zero": (0,)})
    remedies = explain(small).remedy.split(", or ")
    for text, allowed in relaxations(small):
        assert (text in remedies) == has_plan(allowed), text


@recorded("feasibility_relaxation")
def test_reasons_and_remedies_are_the_recorded_ones() -> Cases:
    """Of too little memory, limits one by one and together, and lists without what is needed."""
    both = {"max_step_time_s": 1e-6, "max_cost_usd_per_step": 1e-9}
    changes: dict[str, dict[str, dict[str, object]]] = {
        "both limits": {"limits": dict(both)},
        "step": {"limits": {"max_step_time_s": 1e-6}},
        "degrees": {"search": {"tensor_parallel": (2,)}, "workload": {"kv_heads": 3}},
        "lists": {"search": {"pipeline_parallel": (7,), "zero": (0,), "recompute": ("none",)}},
        "price": {"limits": {"max_price_usd_per_hour": 0.5}},
    }
    for seed in range(0, 5, 2):
        made = {name: random_instance(seed).but(**fields) for name, fields in changes.items()}
        made["memory"] = with_memory(widened(seed), -0.9).but(search={"zero": (0,)})
        for name, one in made.items():
            why = explain(one, 600.0)
            yield f"{name} {seed}", [why.constraint, why.remedy]
            yield f"{name} {seed} choices", [text for text, _ in relaxations(one)]


def test_bug_price_limit_named_was_that_of_the_cheapest_node() -> None:
    """Where no node may be idle, the price of all of them is needed; a node too small is no help.

    Three nodes at 0.1 USD/h cost 0.30000000000000004, which a limit of 0.3 allows.
    """
    text = "limits.max_price_per_hour: {} USD/h"
    cheap, dear = sorted(instance().cluster.groups, key=lambda group: group.price_usd_per_hour)
    tight = {"max_price_usd_per_hour": cheap.price_usd_per_hour / 2}
    limit = amount(explain(instance().but(limits=tight)).remedy, text)
    assert limit == pytest.approx(cheap.price_usd_per_hour + dear.price_usd_per_hour)
    assert solve(instance().but(limits={"max_price_usd_per_hour": limit})).plan is not None
    idle = instance(search=SearchSpace(micro_batch=(1, 2)))
    poor = idle.but(cluster={"groups": (cheap.but(gpu={"memory_bytes": 1}), dear)}, limits=tight)
    assert amount(explain(poor).remedy, text) == dear.price_usd_per_hour
    group = cheap.but(nodes=3, price_usd_per_hour=0.1)
    three = idle.but(cluster={"groups": (group,)}, limits={"max_price_usd_per_hour": 0.3})
    assert list(node_vectors(three)) == [(1,), (2,), (3,)]


def test_remedies_name_the_target_that_can_run_them() -> None:
    """Uneven micro-batches are no remedy for Megatron-LM."""
    fields = {"schedule": ("1f1b",), "micro_batches": "even", "recompute_per": "plan"}
    texts = dict(relaxations(random_instance(0).but(search={"target": "megatron", **fields})))
    assert "search.micro_batches: uneven with search.target: any" in texts
    assert "search.zero: 3 with search.target: torchtitan" in texts
    assert all(runs(wider.search.target, wider.search) for wider in texts.values())
    kept = random_instance(0).but(search={"zero": (3,), "sync_each_batch": (False,)})
    assert "search.sync_each_batch: true" in dict(relaxations(kept))


def test_bug_remedies_outlasted_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not ask whether to stop is ended: 40 s for a limit of 2 were taken.

    A change that was not tried is not named.
    """
    small = with_memory(random_instance(5), -0.3)
    assert explain(small, limit_s=0.0).remedy.startswith("no single change")

    def late(one: Instance, stop: object) -> bool:
        raise TimeUp

    monkeypatch.setattr(feasibility_relaxation, "_binding", late)
    found = explain(instance(), 0.0)
    assert found.constraint.startswith("memory or limits: ")
    assert found.remedy.startswith("no single change")
