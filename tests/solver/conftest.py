"""Fixtures of the reports and of the command line."""

from pathlib import Path

import pytest

from solver.document import PlanDocument
from solver.files import to_json
from solver.report.document import costs_of
from solver.simulate import Step, simulate_step
from tests.hand_made import document_of, heuristic_result, pipelined_result


@pytest.fixture(scope="module")
def document() -> PlanDocument:
    """Two stages, two replicas, ZeRO 1."""
    return document_of(pipelined_result())


@pytest.fixture(scope="module")
def step(document: PlanDocument) -> Step:
    """The simulated step of `document`."""
    return simulate_step(costs_of(document))


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """A plan file that claims no proof."""
    path = tmp_path / "plan.json"
    path.write_text(to_json(document_of(heuristic_result())), encoding="utf-8")
    return path
