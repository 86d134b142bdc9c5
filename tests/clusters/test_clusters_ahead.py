"""Clusters that workers search ahead of their turn."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.paper_crew import PaperCrew
from formulations.instance.family import Counts
from solver.clusters.family_outcome import outcome
from solver.clusters.front import TimeAndMoney
from solver.clusters.member import MemberClosing, Members, MemberTask
from solver.clusters.search import FamilySearch
from solver.options import SolveOptions
from solver.report.document import build_front
from solver.result import Termination
from solver.search.worker_pool import Crew, Forks
from solver.study.store import open_study
from solver.verify.front_file import verify_front
from tests.clusters.test_kept_clusters import few

OPTIONS = SolveOptions(gap=0.01)


def points(crew: Crew | None) -> list[object]:
    """Points of a front with their plans and proofs."""
    search = FamilySearch(family := few(2), TimeAndMoney(family), OPTIONS)
    found = outcome(search, search.run(crew=crew))
    return [(one.nodes, one.result.plan, one.result.log.shapes) for one in found.points]


def test_front_does_not_depend_on_the_workers() -> None:
    """As on a Ray cluster, by processes of this machine, or on paper: same plans and proofs."""
    alone, on_paper = points(None), PaperCrew(16)
    assert points(Forks(2)) == alone
    assert points(on_paper) == alone
    assert 0 < max(on_paper.work_s) <= on_paper.now_s


def test_cutoffs_of_later_turns_are_foreseen() -> None:
    """With plans as they will be found: so workers are asked what one process alone asks."""
    family = few(2)
    search = FamilySearch(family, TimeAndMoney(family), OPTIONS)
    search.clusters.bound()
    expected = dict[Counts, int]()
    turns = list[MemberTask]()
    while task := search.clusters.next_task():
        turns.append(task)
        search.clusters.take(closing := search.members.close(task))
        if closing.found is not None:
            expected[task.counts] = closing.found[1]
    again = FamilySearch(family, TimeAndMoney(family), OPTIONS)
    again.clusters.bound()
    foreseen = [*again.clusters.upcoming(99, expected)]
    assert len({task.cutoff_ns for task in turns}) > 2
    assert [task for task in foreseen if task in turns] == turns


Answer = Callable[[Members, MemberTask, float | None, Callable[[], bool]], MemberClosing]


def test_bug_cluster_that_workers_die_of_was_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays open, the others are closed, and a study does not take it for closed."""
    family = few(2)
    answer: Answer = Members.answer

    def fatal(
        self: Members, task: MemberTask, best: float | None, stop: Callable[[], bool]
    ) -> MemberClosing:
        if task.counts == (2, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(self, task, best, stop)

    def search() -> tuple[Termination, FamilySearch]:
        with open_study(tmp_path / "study.db", family.instance) as study:
            found = FamilySearch(family, TimeAndMoney(family), OPTIONS, study)
            return found.run(crew=Forks(2)), found

    with monkeypatch.context() as patch:
        patch.setattr(Members, "answer", fatal)
        termination, found = search()
    assert termination is Termination.UNFINISHED
    assert found.clusters.left == [(2, 0)]
    assert caplog.messages.count("a cluster of (2, 0) nodes stays open: 3 workers were lost at it")
    assert verify_front(build_front(outcome(found, termination), "front")).ok
    assert search()[0] is Termination.CLOSED
