"""Forged fleet files, and the bound on a fleet's step: never above the best, and close to it."""

from itertools import product
from typing import Any

import pytest

from formulations.costs.template_costs import template_costs
from formulations.fleet import Design
from formulations.instance import Instance
from formulations.pipelines import InstantiationProblem
from solver.files import sealed
from solver.fleet_document import FleetDocument
from solver.fleets.designs import designs_of, fleet_templates
from solver.fleets.fleet import next_fleet, start_fleet
from solver.fleets.instantiate import instantiate
from solver.fleets.recovery import Horizon
from solver.fleets.step_times import kinds_of
from solver.simulate import pipeline_step_ns
from solver.templates.generate import TemplateGenerator, TemplateOptions
from solver.verify import Effort, verify_fleet
from solver.verify.fleet_file import _ranges, least_step_ns, stage_lines
from tests.random_fleets import enlarged, even_designs, fleet_instance
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


#: Of designs that are given, not searched for.
UNCLAIMED = "that no pipeline is faster, which is not claimed of designs [0, 1]"
SEEDS = (1, 9, 13, 17, 31, 36)


def designs(instance: Instance) -> tuple[Design, ...]:
    """Templates of 1 and 2 nodes, with room for all micro-batches."""
    return designs_of(
        fleet_templates(TemplateGenerator(instance, TemplateOptions(micro_batch=1)), [1, 2])
    )


def exact_ns(document: FleetDocument, faults: int) -> int:
    """Step of the best fleet on all nodes, by the knapsack of the search."""
    instance = document.instance
    kinds = kinds_of(instance, document.designs)
    available = tuple(group.nodes for group in instance.cluster.groups)
    total = instance.workload.global_batch // document.designs[0].strategy.micro_batch
    problem = InstantiationProblem(kinds, available, faults, total, all_nodes=False)
    found = instantiate(problem)
    assert found is not None
    return found.step_ns(problem)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_line_is_above_the_simulated_step(seed: int) -> None:
    """Times m t + w of every stage, for 1 to 6 micro-batches; of a single stage it is the step."""
    instance = enlarged(seed)
    for design, m in product(designs(instance), range(1, 7)):
        costs = template_costs(instance, design.strategy, design.template)
        step_ns = pipeline_step_ns(costs, m)
        most_ns = max(m * each_ns + wait_ns for each_ns, wait_ns in stage_lines(costs))
        assert most_ns <= step_ns
        assert costs.num_stages > 1 or most_ns == step_ns


def test_parts_of_numbers_of_pipelines_hold_all() -> None:
    """Also one alone."""
    assert list(_ranges(1, 1)) == [range(1, 2)]


@pytest.mark.parametrize("seed", SEEDS)
def test_bound_is_not_above_the_best_fleet(seed: int) -> None:
    """Also where the fleet at hand is slower, as it survives more failures."""
    instance = enlarged(seed)
    for faults in (0, 1, 2):
        document = start_fleet(instance, designs(instance), 1)
        asked = document.but(faults=faults)
        exact = exact_ns(asked, min(faults, document.survives))
        bound = least_step_ns(asked, 10 * exact)
        assert bound is not None
        assert exact / 2 <= bound <= exact


def test_a_bound_on_steps_is_at_the_word_of_the_search(recovered: FleetDocument) -> None:
    """What the verifier shows is near it, as copies take little of an hour."""
    verification = verify_fleet(recovered)
    assert verification.problems == ()
    [claim, unclaimed] = verification.reservations
    assert unclaimed == UNCLAIMED
    assert claim.startswith("the bound on its steps, at the word of the search (proved again: none")
    assert any(line.startswith("no fleet of these templates") for line in verification.checked)


def test_a_bound_that_is_shown_again_needs_no_word(recovered: FleetDocument) -> None:
    """Half as much again as this fleet trains is more than any does."""
    assert recovered.recovery is not None
    document = sealed(recovered.but(recovery={"steps_bound": 1.5 * recovered.recovery.steps}))
    assert verify_fleet(document).problems == ()
    assert verify_fleet(document).reservations == (UNCLAIMED,)
    least_ns = least_step_ns(recovered, round(recovered.step_time_s * 1e9))
    assert least_ns is not None
    shown = (3600 - recovered.recovery.restart_s) * 1e9 / least_ns
    document = sealed(recovered.but(recovery={"steps_bound": shown}))
    assert verify_fleet(document).reservations == (UNCLAIMED,)


def test_too_many_mixes_are_left_to_the_search(
    recovered: FleetDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is named, without a figure."""
    monkeypatch.setattr("solver.verify.fleet_file.MOST_ENTRIES", 0)
    claim = "the bound on its steps, at the word of the search"
    assert verify_fleet(recovered).reservations == (claim, UNCLAIMED)
