"""Templates in a study: those that were found stay found."""

from pathlib import Path
from typing import Any

import pytest

from solver.fleets.template_document import TemplatesDocument, templates_document
from solver.graph.gpu_graph import Counts
from solver.interrupt import Stop
from solver.study.store import StudyError, open_study, read_study
from solver.templates.generate import TemplateGenerator, TemplateOptions, best_of_strategies
from solver.templates.kept_templates import Found, open_mixes
from tests.command_line import output
from tests.conftest import ROOT
from tests.random_fleets import fleet_instance

INSTANCE = fleet_instance(4)
ONE = TemplateOptions(micro_batch=1)


class Killed(BaseException):
    """Stands for a kill, which nothing catches."""


def templates(path: Path | None, options: TemplateOptions = ONE) -> TemplatesDocument:
    """The templates that survive no failure, with a study or without one."""
    if path is None:
        return templates_document(TemplateGenerator(INSTANCE, options), 0)
    with open_study(path, INSTANCE) as study:
        return templates_document(TemplateGenerator(INSTANCE, options, study=study), 0)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Counts]:
    """A list to which a mix is added for every search; the second one is killed."""
    mixes = list[Counts]()

    def counted(costs: Any, mix: Counts, m: int, gap: float, stop: Stop) -> Found:
        mixes.append(mix)
        if len(mixes) == 2:
            raise Killed
        return best_of_strategies(costs, mix, m, gap, stop)

    monkeypatch.setattr("solver.templates.generate.best_of_strategies", counted)
    return mixes


def test_killed_search_goes_on(tmp_path: Path, searches: list[Counts]) -> None:
    """It loses the mix in hand, shows what is open, and ends with what a fresh run finds.

    What was found says nothing of another number of micro-batches.
    """
    path = tmp_path / "study.db"
    with pytest.raises(Killed):
        templates(path)
    with read_study(path) as (study, notes):
        state = open_mixes(study, notes)
    assert state is not None
    assert state[0] == 1
    assert len(state[1]) > 0
    resumed = templates(path)
    assert len(searches) == state[0] + 1 + len(state[1])
    assert resumed == templates(path) == templates(None)
    others = TemplateOptions(micro_batch=1, micro_batches=5)
    assert templates(path, others) == templates(None, others)


def test_template_that_was_changed(tmp_path: Path) -> None:
    """It is simulated before it is believed."""
    path = tmp_path / "study.db"
    templates(path)
    with open_study(path, INSTANCE) as study:
        changed = [
            one._replace(fields=one.fields.replace('"value":', '"value":1'))
            for one in study.every("template")
        ]
    with open_study(tmp_path / "other.db", INSTANCE) as study:
        for one in changed:
            study.keep("template", *one)
    with pytest.raises(StudyError, match=r"a template of 1\d+ ns takes"):
        templates(tmp_path / "other.db")


def test_command_line_keeps_and_shows(tmp_path: Path) -> None:
    """`templates --study` writes what `show --study` reads."""
    path = tmp_path / "study.db"
    small = ROOT / "instances" / "hetero_small.yaml"
    output("templates", small, "--micro-batch", 4, "--study", path)
    text = "templates     hetero_small, 4 mixes of nodes closed, 0 open\n"
    assert output("show", "--study", path) == text
