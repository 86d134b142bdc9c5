"""Forged fleet files, and the bound on a fleet's step: never above the best, and close to it."""

from itertools import product

import pytest

from formulations.costs.template_costs import template_costs
from formulations.fleet import Design
from formulations.instance import Instance
from formulations.pipelines import InstantiationProblem
from solver.files import sealed
from solver.fleet_document import FleetDocument
from solver.fleets.designs import designs_of, fleet_templates
from solver.fleets.fleet import start_fleet
from solver.fleets.instantiate import instantiate
from solver.fleets.step_times import kinds_of
from solver.simulate import pipeline_step_ns
from solver.templates.generate import TemplateGenerator, TemplateOptions
from solver.verify import verify_fleet
from solver.verify.fleet_file import least_step_ns, stage_lines
from tests.conftest import present
from tests.recorded import as_recorded
from tests.template_cases import after_a_loss, enlarged
from tests.verify.forgeries import judged

FIELDS = (
    "faults survives designs pipelines idle away exchange_s step_time_s throughput recovery "
    "instance.search.recompute"
)


def test_what_is_said_of_forged_fleets() -> None:
    """Places, templates, figures and copies: what does not fit is refused, by its field."""
    verdicts = judged("recovered", after_a_loss(), verify_fleet, FIELDS, number=1)
    as_recorded("verify_fleet_file", verdicts)


#: Of designs that are given, not searched for.
UNCLAIMED = "that no pipeline is faster, which is not claimed of designs [0, 1]"
SEEDS = (1, 31)


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
    found = present(instantiate(problem))
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


@pytest.mark.parametrize("seed", SEEDS)
def test_bound_is_not_above_the_best_fleet(seed: int) -> None:
    """Also where the fleet at hand is slower, as it survives more failures."""
    instance = enlarged(seed)
    for faults in (0, 1, 2):
        document = start_fleet(instance, designs(instance), 1)
        asked = document.but(faults=faults)
        exact = exact_ns(asked, min(faults, document.survives))
        bound = present(least_step_ns(asked, 10 * exact))
        assert exact / 2 <= bound <= exact


def test_a_bound_on_steps_is_at_the_word_of_the_search() -> None:
    """What the verifier shows is near it, as copies take little of an hour."""
    verification = verify_fleet(after_a_loss())
    assert verification.problems == ()
    [claim, unclaimed] = verification.reservations
    assert unclaimed == UNCLAIMED
    assert claim.startswith("the bound on its steps, at the word of the search (proved again: none")
    assert any(line.startswith("no fleet of these templates") for line in verification.checked)


def test_a_bound_that_is_shown_again_needs_no_word() -> None:
    """Half as much again as this fleet trains is more than any does."""
    recovered = after_a_loss()
    assert recovered.recovery is not None
    document = sealed(recovered.but(recovery={"steps_bound": 1.5 * recovered.recovery.steps}))
    assert verify_fleet(document).problems == ()
    assert verify_fleet(document).reservations == (UNCLAIMED,)
    least_ns = present(least_step_ns(recovered, round(recovered.step_time_s * 1e9)))
    shown = (3600 - recovered.recovery.restart_s) * 1e9 / least_ns
    document = sealed(recovered.but(recovery={"steps_bound": shown}))
    assert verify_fleet(document).reservations == (UNCLAIMED,)


def test_too_many_mixes_are_left_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.verify.fleet_file.MOST_ENTRIES", 0)
    claim = "the bound on its steps, at the word of the search"
    assert verify_fleet(after_a_loss()).reservations == (claim, UNCLAIMED)
