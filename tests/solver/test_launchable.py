"""What a search for a target chooses can be launched by it: plans of random instances, exported."""

import random
from itertools import islice
from typing import Literal, get_args

import pytest

from formulations.instance import Instance
from formulations.launch import able
from formulations.plan import Plan
from solver.evaluate.run_space import narrowed
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from solver.search.driver import solve
from solver.search.shapes import shapes
from solver.verify.space import PlanSpace, key_of
from tests.expert_instances import expert_instance
from tests.hand_made import uniform_plans
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.unlike_degrees import unlike_instance

Launcher = Literal["megatron", "flagscale", "torchtitan"]
TARGETS: tuple[Launcher, ...] = get_args(Launcher)
MAKERS = random_instance, expert_instance, unlike_instance


def instance_for(target: Launcher, seed: int) -> Instance:
    """A tiny instance with all that the target's rules leave; every fifth has moments in bf16."""
    rng = random.Random(seed)
    made = MAKERS[seed % len(MAKERS)](seed)
    wide = {
        "target": "any",
        "schedule": ("1f1b", "gpipe", "interleaved", "zb-h1"),
        "recompute": ("none", "selective", "full"),
        "zero": (0, 1, 2, 3),
        "micro_batches": "uneven",
        "sequence_parallel": rng.random() < 0.7,
    }
    search = narrowed(made.search.model_copy(update=wide), target)
    workload = made.workload.model_copy(
        update={
            "precision": "bf16",
            "tied_embeddings": made.workload.tied_embeddings and rng.random() < 0.5,
            "optimizer_bytes": 8 if target != "torchtitan" and seed % 5 == 0 else 12,
            "mtp_layers": 1 if target != "flagscale" and seed % 7 == 0 else 0,
        }
    )
    return made.model_copy(update={"search": search, "workload": workload})


def check(instance: Instance, plan: Plan, target: Launcher) -> None:
    """The target's exporter takes the plan, and its files sum to it."""
    job, exporter = Job(instance, plan), EXPORTERS[target]
    assert [fault.found for fault in exporter.faults(job)] == []
    exporter.check(job, exporter.files(job))
    assert target in able(instance, plan)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", one_each(range(60), 10))
def test_every_shape_of_a_target_can_be_exported(target: Launcher, seed: int) -> None:
    """Whatever the search may choose; the verifier lists the same shapes."""
    instance = instance_for(target, seed)
    found = {key_of(shape) for shape in shapes(instance)}
    space = PlanSpace(instance)
    assert found == {key for used in space.nodes for key in space.keys(used)}
    for plan in islice(uniform_plans(instance), 400):
        check(instance, plan, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", one_each(range(30), 10))
def test_solved_plans_are_exported(target: Launcher, seed: int) -> None:
    """The best plan of a search for a target is never refused by its exporter."""
    instance = instance_for(target, seed)
    result = solve(instance)
    if result.plan is not None:
        check(instance, result.plan, target)
