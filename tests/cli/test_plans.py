"""What is done with plan files: `show`, `verify`, `report`, `export`, `diff`, `explain`."""

from pathlib import Path

import pytest

from solver.document import PlanDocument
from solver.files import sealed, to_json
from tests.certified_cases import solved_document
from tests.command_line import refused, run
from tests.docs_pages import check_consoles
from tests.small_instances import random_instance

test_consoles_of_plans = check_consoles(
    "plans"
)  # Stages, places, timeline, page, launch files, differences, and what is refused


@pytest.fixture
def proved_file(tmp_path: Path) -> Path:
    """A plan file with proof, of which the verifier leaves two entries to the search's word."""
    path = tmp_path / "proved.json"
    path.write_text(to_json(solved_document(random_instance(25))))
    return path


@pytest.mark.parametrize("option", [("--quick",), ("--time-limit", "1e-9")])
def test_verify_exits_5_for_what_is_not_proved(proved_file: Path, option: tuple[str, ...]) -> None:
    """Exit code 5 and the claims that were not proved, whether time or patience was short."""
    code, out, err = run("verify", proved_file, *option)
    assert code == 5
    assert "not proved again: closed_configs[" in out
    assert "verified" not in out
    assert err.startswith(f"error: {proved_file}: nothing wrong, but ")


def test_bug_show_took_a_forged_figure(plan_file: Path) -> None:
    document = PlanDocument.read(plan_file)
    forged = document.but(step_time_s=(document.step_time_s or 0.0) / 2)
    plan_file.write_text(to_json(sealed(forged)), encoding="utf-8")
    assert "step_time_s: found" in refused("show", plan_file)
