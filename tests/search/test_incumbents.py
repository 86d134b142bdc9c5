"""Searches for first plans spend no more than what has been spent before them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from solver.options import SolveOptions
from solver.search import incumbents
from solver.search.plan_search import PlanSearch
from solver.study.store import StudyError, open_study
from tests.conftest import present
from tests.search.spaces import recorded_searches
from tests.small_instances import random_instance

test_searches_are_the_recorded_ones = recorded_searches()


def asks(stop: Callable[[], bool]) -> int:
    """How often a search asks that ends only when it is told to."""
    return next(n for n in range(1, 100_000) if stop())


@pytest.mark.parametrize("limit_s", [None, 1000.0])
def test_bug_a_survey_took_as_long_as_it_liked(
    limit_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops after 200 questions or as many as all before it: 201, then one of 202 more."""
    asked: list[int] = []
    monkeypatch.setattr(incumbents, "surveyed_plan", lambda *words: asked.append(asks(words[3])))
    search = PlanSearch(random_instance(0), SolveOptions(time_limit_s=limit_s))
    for _ in range(2):
        search.incumbents.survey(search.space)
    assert asked == [201, 202]
    assert search.incumbents.cut
    assert search.incumbents.asked == 403


def test_a_plan_as_good_as_the_incumbent_is_no_news() -> None:
    """The history has one moment less than it would. Beyond a limit it is none, at it it is."""
    instance = random_instance(0)
    search = PlanSearch(instance, SolveOptions())
    search.close()
    best, moments = present(search.incumbents.known.found), len(search.incumbents.history)
    search.incumbents.offer(best)
    assert len(search.incumbents.history) == moments
    for limit_ns, known in ((best[1], best), (best[1] - 1, None)):
        limited = instance.but(limits={"max_step_time_s": limit_ns / 1e9})
        incumbents = PlanSearch(limited, SolveOptions()).incumbents
        incumbents.offer(best)
        assert incumbents.known.found == known


def test_a_study_keeps_what_searches_for_first_plans_end_with(tmp_path: Path) -> None:
    """Of the same search the plan is known at once; that of another one is not; all are recalled.

    A plan that is not what it is said to be is refused, and a search that finds none is kept, too.
    """
    instance = random_instance(0)
    plain = PlanSearch(instance, SolveOptions())
    plain.first_plans(plain.space)
    best = present(plain.incumbents.known.found)
    with open_study(tmp_path / "kept", instance) as study:
        incumbents = PlanSearch(instance, SolveOptions(), study=study).incumbents
        incumbents.start("none", lambda: None)
        incumbents.start("best", lambda: incumbents.offer(best))
        fresh = PlanSearch(instance, SolveOptions(), study=study).incumbents
        for name, known in (("none", None), ("best", best), ("other", best)):
            fresh.start(name, lambda: None)
            assert fresh.known.found == known
        recalled = PlanSearch(instance, SolveOptions(), study=study).incumbents
        recalled.recall()
        assert recalled.known.found == best
        wrong = PlanSearch(instance, SolveOptions(seed=1), study=study).incumbents
        wrong.start("wrong", lambda: wrong.offer((best[0], best[1] - 1)))
        with pytest.raises(StudyError):
            recalled.recall()
