"""The enumeration engine: exact on chains, honest when stopped, and no slower than it was."""

import pytest

from solver.enumeration import engine
from solver.enumeration import enumerate as enumerate_
from solver.graph.problem import SplitProblem
from solver.interrupt import after
from tests.chain_instances import all_splits
from tests.graph.drawn import NO_CUTOFF, Questions, chain_time, problems_with_edges, random_chain
from tests.recorded import Cases, digest, recorded, summary
from tests.seeds import one_each


def chain_optimum(problem: SplitProblem) -> int:
    splits = all_splits(problem.num_layers, problem.num_stages)
    return min(chain_time(problem, split) for split in splits)


@pytest.mark.parametrize("seed", one_each(range(48), 6))
def test_chain_equals_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both schedules, blocking or not, transfers unlike in both directions: the exact optimum.

    A few splits simulated at a time: the search learns from those that are refuted.

    With the optimum as cutoff there is no split; one nanosecond more, and there is. Up to a gap
    bound and plan enclose it.
    """
    for limit, number in (("CHUNK", 16), ("SAMPLE", 2)):
        monkeypatch.setattr(enumerate_, limit, number)
    problem = random_chain(seed)
    best = chain_optimum(problem)
    outcome = engine.solve_split(problem, NO_CUTOFF)
    assert (outcome.step_time_ns, outcome.bound_ns, outcome.complete) == (best, best, True)
    assert engine.solve_split(problem, best) == engine.SplitOutcome(None, None, None, best, True)
    assert engine.solve_split(problem, best + 1).step_time_ns == best
    for gap in (0.01, 0.1):
        outcome = engine.solve_split(problem, NO_CUTOFF, gap)
        assert outcome.step_time_ns is not None
        assert outcome.step_time_ns * (1 - gap) <= outcome.bound_ns <= best <= outcome.step_time_ns


def test_bug_stopped_searches_said_more_than_they_had_looked_at() -> None:
    """Bounds of the edges that splits below a cutoff use were taken for bounds of all splits."""
    for seed in range(30):
        problem = random_chain(seed)
        best, stop = chain_optimum(problem), after(seed % 5, lambda: False)
        assert engine.solve_split(problem, best * 9 // 10, 0.02, stop).bound_ns <= best


def test_bug_what_windows_have_proved_is_not_enumerated() -> None:
    """Where an earlier bound is within the gap of the best split, nothing is left to look at."""
    search = engine._Search(random_chain(10), NO_CUTOFF, 0.0)
    search.descend(lambda: False)
    assert search.layers is not None
    search.bound = search.target
    assert search.enumerate(lambda: True)


def test_bug_a_much_better_split_ended_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges and bounds are worked out anew with it, also in a search that nothing stops."""
    values = {"FIRST_EXTENSIONS": 0, "EDGES_PER_EXTENSION": 10**9, "STARTS": 1, "SWEEPS": 0}
    for name, value in values.items():
        monkeypatch.setattr(engine, name, value)
    monkeypatch.setattr(enumerate_, "CHUNK", 1)
    for seed in range(46):
        problem = random_chain(seed)
        outcome = engine.solve_split(problem, NO_CUTOFF)
        assert (outcome.bound_ns, outcome.complete) == (chain_optimum(problem), True)


@recorded("engine")
def test_work_is_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """From starts and descents on; with little effort before windows, and up to a gap."""
    monkeypatch.setattr(engine, "FIRST_EXTENSIONS", 3)
    monkeypatch.setattr(engine, "MOST_MOVES", 5)
    monkeypatch.setattr(engine, "MANY_MICRO_BATCHES", 6)
    for name, problem, layers in problems_with_edges(every=3):
        arcs, split, best, cuts = engine.best_start(problem, layers, lambda: False)
        first = [arcs.tolist(), split.tolist(), digest(summary([engine.starts(layers), cuts]))]
        moves = len(engine.neighbours(problem, arcs, split))
        asked, known = Questions(), list[engine.SplitOutcome]()
        for stop in (asked, after(1, lambda: False), after(4, lambda: False)):
            known.append(engine.solve_split(problem, best + 1, 0.0, stop))
            known.append(engine.solve_split(problem, best + 9, 0.02, stop))
        told = [(each.step_time_ns, each.bound_ns, each.complete) for each in known]
        yield name, [best, moves, digest(first), asked.number, told]
