"""Templates in a study: those that were found stay found."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from solver.fleets.template_document import TemplatesDocument, templates_document
from solver.graph.gpu_graph import Counts
from solver.study.store import StudyError, open_study, read_study
from solver.templates.generate import TemplateGenerator, TemplateOptions, best_of_strategies
from solver.templates.kept_templates import Found, KeptTemplates, open_mixes
from solver.templates.step_time import Stop
from tests.command_line import output
from tests.random_fleets import fleet_instance

SMALL = Path(__file__).resolve().parents[2] / "instances" / "hetero_small.yaml"
INSTANCE = fleet_instance(4)
ONE = TemplateOptions(micro_batch=1)


class Killed(BaseException):
    """Stands for a kill, which nothing catches."""


def found(path: Path, options: TemplateOptions = ONE) -> TemplatesDocument:
    """The templates that survive no failure, with a study."""
    with open_study(path, INSTANCE) as study:
        return templates_document(TemplateGenerator(INSTANCE, options, study=study), 0)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Counts]:
    """A list to which a mix is added for every search."""
    mixes = list[Counts]()

    def counted(costs: Any, mix: Counts, m: int, gap: float, stop: Stop) -> Found:
        mixes.append(mix)
        if len(mixes) == 2:
            raise Killed
        return best_of_strategies(costs, mix, m, gap, stop)

    monkeypatch.setattr("solver.templates.generate.best_of_strategies", counted)
    return mixes


def test_killed_search_goes_on(tmp_path: Path, searches: list[Counts]) -> None:
    """It loses the mix in hand, shows what is open, and ends with what a fresh run finds."""
    path = tmp_path / "study.db"
    with pytest.raises(Killed):
        found(path)
    with read_study(path) as (study, notes):
        shown = open_mixes(study, notes)
    assert shown is not None
    assert shown[0] == 1
    assert len(shown[1]) > 0
    resumed = found(path)
    assert len(searches) == shown[0] + 1 + len(shown[1])
    assert resumed == templates_document(TemplateGenerator(INSTANCE, ONE), 0)


def test_other_options_are_other_questions(tmp_path: Path) -> None:
    """What was found for one number of micro-batches says nothing of another."""
    path = tmp_path / "study.db"
    found(path)
    other = TemplateOptions(micro_batch=1, micro_batches=5)
    assert found(path, other) == templates_document(TemplateGenerator(INSTANCE, other), 0)


def test_other_limits_are_other_questions(tmp_path: Path) -> None:
    """The file is of the same instance, but no template is taken from it."""
    path = tmp_path / "study.db"
    found(path)
    limited = INSTANCE.but(limits=INSTANCE.limits.but(max_step_time_s=1.0))
    for instance, is_kept in ((INSTANCE, True), (limited, False)):
        with open_study(path, instance) as study:
            templates = KeptTemplates(study, asdict(ONE))
            records = list(study.every("template"))
            for record in records:
                mix, variant = json.loads(record.key)["nodes"], json.loads(record.variant)
                template = templates.find(tuple(mix), variant["micro_batches"])
                assert (template is not None) == is_kept
            assert records


def test_template_that_was_changed(tmp_path: Path) -> None:
    """It is simulated before it is believed."""
    path = tmp_path / "study.db"
    found(path)
    with open_study(path, INSTANCE) as study:
        changed = [
            one._replace(fields=one.fields.replace('"value":', '"value":1'))
            for one in study.every("template")
        ]
    with open_study(tmp_path / "other.db", INSTANCE) as study:
        for one in changed:
            study.keep("template", *one)
    with pytest.raises(StudyError, match=r"a template of 1\d+ ns takes"):
        found(tmp_path / "other.db")


def test_command_line_keeps_and_shows(tmp_path: Path) -> None:
    """`templates --study` writes what `show --study` reads."""
    path = tmp_path / "study.db"
    output("templates", SMALL, "--micro-batch", 4, "--study", path)
    assert (
        output("show", "--study", path)
        == "templates     hetero_small, 4 mixes of nodes closed, 0 open\n"
    )
