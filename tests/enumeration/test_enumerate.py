"""All splits below a cutoff: the best of them is found, and a bound is left when stopped."""

import pytest

from solver.enumeration import enumerate as module
from solver.enumeration.engine import best_start
from solver.enumeration.enumerate import Enumerator, below
from solver.graph.edges import renumbered
from solver.interrupt import after
from tests.graph.drawn import Questions, problems_with_edges
from tests.recorded import Cases, recorded


@recorded("enumerate")
def test_work_is_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """A few prefixes at a time; bounds when stopped, questions until it is done, cuts learned.

    Ten percent of 101 ns are off, rounded up; without a gap nothing is.
    """
    assert (below(100, 0.1), below(101, 0.1), below(101, 0.0)) == (90, 91, 101)
    monkeypatch.setattr(module, "CHUNK", 8)
    monkeypatch.setattr(module, "MAX_CUTS", 3)
    monkeypatch.setattr(module, "SAMPLE", 2)
    for name, problem, edges in problems_with_edges(every=2):
        layers = renumbered(edges)
        time_ns, cuts = best_start(problem, layers, lambda: False)[2:]
        asked, known = Questions(), list[object]()
        for gap, cutoff in ((0.0, time_ns * 6 // 5), (0.05, time_ns * 6 // 5), (0.0, time_ns + 1)):
            search = Enumerator(problem, layers, cutoff, cuts, gap)
            early = [search.run(after(number, lambda: False)) for number in (0, 2, 5)]
            last = search.run(asked)
            known.append([*early, last, search.best_time, asked.number, search.round])
        yield name, known
