"""The command `lengths`, and the file that it writes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from formulations.units import seconds
from solver.evaluate.evaluation import row_plans
from solver.files import to_json
from solver.lengths.candidates import candidates
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.switching.documented import switch_document
from tests.command_line import refused, run
from tests.docs_pages import shown_and_printed
from tests.mixed_rows import small


def test_bug_consoles_of_lengths() -> None:
    """Measured strategies and planned ones, files of steps, pictures, and what is refused."""
    shown, printed = shown_and_printed("lengths")
    assert printed == shown


@pytest.fixture(scope="module")
def step() -> LengthsDocument:
    """A step of planned strategies."""
    instance = small()
    found = candidates(instance)
    plans = row_plans(instance, found)
    return build_lengths(choose(found.mixed, "ascending"), "tiny", instance, plans, found.above)


def test_a_switch_takes_the_time_that_a_step_was_chosen_by(step: LengthsDocument) -> None:
    """Between the first and the last of its plans."""
    first, *_, last = step.plans
    time_ns = step.problem.switching.parameters_ns[0][-1] or 0
    assert switch_document(first, last, "parameters", None).time_s == seconds(time_ns)


def test_bug_forged_times_passed_as_those_of_the_instance(
    step: LengthsDocument, tmp_path: Path
) -> None:
    """A right step of other strategies is one by itself, but not of the instance in the file."""
    mixed = step.problem
    strategies = (replace(mixed.strategies[0], visit_ns=7), *mixed.strategies[1:])
    chosen = choose(replace(mixed, strategies=strategies), "ascending")
    forged = tmp_path / "forged.json"
    forged.write_text(to_json(build_lengths(chosen, "tiny", step.instance, step.plans, step.above)))
    code, out, _ = run("verify", forged)
    assert code == 1
    assert "refused: problem.strategies[0].visit_ns: found 7, expected " in out


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("schema_version",), 9, "schema version 9; allowed: 5; run lengths again"),
        (("problem", "atoms", 0, "tokens"), 4000, "by ascending tokens"),
        (("problem", "switching", "gradients_ns"), [[0]], "a table of switches of another size"),
        (("problem", "strategies", 0, "replicas"), [], "replicas and atoms_ns; allowed: one"),
        (
            ("problem", "strategies", 0, "replicas", 0, "time", "rows_ns"),
            [[5, 5]],
            "1 rows_ns, packed",
        ),
        (("problem", "rowz"), 5, "problem.rowz"),
        (("groups",), [], "groups"),
    ],
)
def test_files_that_are_none(
    path: tuple[str | int, ...], value: object, said: str, step: LengthsDocument, tmp_path: Path
) -> None:
    """One line that says where, what was found and what is allowed."""
    document = at = json.loads(to_json(step))
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(document))
    assert said in refused("verify", broken)
