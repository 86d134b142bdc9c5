"""Forged fleet files: each constraint is named by the field that breaks it."""

from typing import Any

import pytest

from solver.fleet_document import FleetDocument
from solver.fleets.fleet import next_fleet, start_fleet
from solver.fleets.recovery import Horizon
from solver.verify import Effort, verify_fleet
from tests.random_fleets import even_designs, fleet_instance
from tests.resealed import resealed

UNPROVED = Effort(prove="nothing")


@pytest.fixture(scope="module")
def recovered() -> FleetDocument:
    """Seven nodes, templates of two and three; one is lost."""
    fleet = start_fleet(fleet_instance(7), even_designs(range(2, 4)), 1)
    return next_fleet(fleet, [fleet.pipelines[0].nodes[0]], [], Horizon(3600 * 10**9))


def test_a_fleet_has_no_problems(recovered: FleetDocument) -> None:
    """What is forged below was right before."""
    assert verify_fleet(recovered, UNPROVED).problems == ()


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "design": ({"pipelines.0.design": 7}, "pipelines[0].design: found 7, expected below"),
    "nodes": ({"pipelines.0.nodes": lambda own: own[:-1]}, "pipelines[0].nodes: found"),
    "shared": ({"pipelines.1.nodes": lambda own: ["a-0", *own[1:]]}, "pipelines"),
    "missing": ({"away": []}, "pipelines, idle, away: found"),
    "size": ({"designs.0.strategy.micro_batch": 2}, "designs: found micro-batches of [1, 2]"),
    "recompute": ({"designs.0.strategy.recompute": ["selective"]}, "designs[0].strategy.recompute"),
    "blocks": ({"designs.0.template.stages.0.recomputed.blocks": 9}, "designs[0].template.stages"),
    "survives": ({"survives": 9}, "survives: found 9"),
    "exchange": ({"exchange_s": 1.0}, "exchange_s: found 1.0"),
    "throughput": ({"throughput_sequences_per_s": 1.0}, "throughput_sequences_per_s: found 1.0"),
    "lost": ({"recovery.lost": ["nobody"]}, "recovery.lost: found"),
    "joined": ({"recovery.joined": lambda own: [*own, "nobody"]}, "recovery.joined: found"),
    "copies": ({"recovery.copies": lambda own: own[1:]}, "recovery.copies: found"),
    "replica": ({"recovery.copies.0.replica": 9}, "recovery.copies[0].replica: found 9"),
    "bytes": ({"recovery.copies.0.size_bytes": 1}, "recovery.copies[0].size_bytes: found 1"),
    "transfer": ({"recovery.transfer_s": 99.0}, "recovery.transfer_s: found 99.0"),
    "step": ({"step_time_s": 1.0}, "step_time_s: found 1.0"),
    "micro_batches": ({"pipelines.0.micro_batches": 11}, "pipelines: sequences of a step: found"),
    "unknown": ({"idle": ["a-99"]}, "pipelines, idle, away: found"),
    "source": ({"recovery.copies.0.source": "a-0"}, "recovery.copies[0].source: found a-0"),
    "twice": ({"designs": lambda own: [*own, own[0]]}, "designs: found a template twice"),
    "strategy": ({"instance.search.recompute": ["full"]}, "designs[0].strategy.recompute: found"),
    "gpus": ({"designs.0.template.stages.0.group.gpus": [5]}, "designs[0].template.stages[0]"),
    "layers": ({"designs.0.template.stages.1.layers": [3, 5]}, "designs[0].template: layers"),
    "memory": ({"instance.limits.framework_reserve_bytes": 2 * 10**10}, "pipelines[0], stage 0"),
    "bound": ({"recovery.steps_bound": 0.5}, "recovery.steps_bound: found 0.5, expected at least"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_constraint_is_named(recovered: FleetDocument, name: str) -> None:
    """One line starts with the field, whatever the digest says."""
    changes, start = BROKEN[name]
    problems = verify_fleet(resealed(recovered, changes), UNPROVED).problems
    assert [line for line in problems if line.startswith(start)], problems
