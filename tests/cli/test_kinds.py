"""The kinds of files: what each can do, and what is said of those that cannot."""

from pathlib import Path

import pytest

from formulations.errors import PlanError, PlannerError
from solver.cli.files import checked
from solver.cli.kinds import KINDS, page_of
from solver.document import PlanDocument
from solver.files import to_json
from solver.result import Status, Termination
from tests.hand_made import document_of, heuristic_result, planless_result
from tests.report.shown import front


def test_files_without_a_plan_are_not_shown(tmp_path: Path) -> None:
    """The status says why; claims are what only `verify` proves."""
    path = tmp_path / "plan.json"
    planless = document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    path.write_text(to_json(planless), encoding="utf-8")
    with pytest.raises(PlanError, match=r"no plan \(status unknown\)"):
        checked(path, *KINDS)
    path.write_text(to_json(document_of(heuristic_result())), encoding="utf-8")
    assert not KINDS[PlanDocument].claims(checked(path, *KINDS))


def test_only_plans_are_shown_beside_each_other() -> None:
    plan = document_of(heuristic_result())
    with pytest.raises(PlannerError, match=r"front\.json: a front file beside b\.json; allowed: "):
        page_of(front(), "front.json", (plan, "b.json"))
