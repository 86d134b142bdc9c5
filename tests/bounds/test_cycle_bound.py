"""Bounds by windows: below every path, no path below the cutoff loses an edge, and tight."""

import numpy as np
import pytest

from bench.splits import chain_problem
from formulations.schedules.registry import SCHEDULES
from solver.bounds import cycle_bound
from solver.bounds.cycle_bound import Class, by_windows
from solver.bounds.latency_bottleneck import tighten
from solver.enumeration.engine import solve_split
from solver.graph.edges import Layers, build_layers
from solver.graph.problem import SplitProblem
from solver.interrupt import after
from tests.conftest import present
from tests.graph.drawn import NO_CUTOFF, best_ns, problems
from tests.recorded import Cases, digest, recorded, summary


def windows(problem: SplitProblem, cutoff: int, lane: int = 0) -> tuple[Layers, Class]:
    """Edges of a problem that has a split below the cutoff, and what windows say of them."""
    layers = present(tighten(problem, build_layers(problem, cutoff), cutoff))
    return layers, by_windows(problem, layers, cutoff, lane=lane)


def keeps(problem: SplitProblem) -> bool:
    """Whether bounds are no higher than the optimum just allowed, and keep its edges."""
    best = solve_split(problem, NO_CUTOFF)
    if best.step_time_ns is None or best.split is None or best.arcs is None:
        return True
    kept = []
    for lane in range(problem.num_lanes):
        layers, bounds = windows(problem, best.step_time_ns + 1, lane)
        kept.append(bounds.bound_ns <= best.step_time_ns)
        kept += [
            ((edges.arc == arc) & (edges.start == a) & (edges.end == b) & useful).any()
            for edges, useful, arc, a, b in zip(
                layers, bounds.useful, best.arcs, best.split, best.split[1:], strict=False
            )
        ]
    return all(kept)


@pytest.mark.parametrize("compared", [0, 1 << 21])
def test_best_splits_stay_below_the_cutoff(monkeypatch: pytest.MonkeyPatch, compared: int) -> None:
    """Of chains and of every lane of all orders, also if labels have to be merged to one."""
    monkeypatch.setattr(cycle_bound, "MOST_COMPARED", compared)
    assert all(keeps(problem) for problem in list(problems().values())[compared > 0 :: 9])


@recorded("cycle_bound")
def test_bounds_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Keys are those of random labels, of which few stand for others."""
    labels = cycle_bound.Labels(*np.random.default_rng(1).integers(10**6, size=(8, 30)))
    for name, problem in list(problems().items())[::4]:
        best = best_ns(name)
        if best is None or not SCHEDULES[problem.schedule].turns:
            continue
        for cutoff, compared in ((best + 1, 1 << 21), (best * 3 // 2, 1 << 21), (best + 1, 0)):
            monkeypatch.setattr(cycle_bound, "MOST_COMPARED", compared)
            layers = present(tighten(problem, build_layers(problem, cutoff), cutoff))
            halted = after(4, lambda: False)
            lane = problem.num_lanes - 1
            ways = [
                by_windows(problem, layers, cutoff, lane=lane),
                by_windows(problem, layers, cutoff, lane=lane, halve=False),
                by_windows(problem, layers, cutoff, halted, lane),
            ]
            left = [sum(int(mask.sum()) for mask in way.useful) for way in ways]
            paths = [None if way.path is None else way.path.tolist() for way in ways]
            bounds = [way.bound_ns for way in ways]
            search = cycle_bound._Lane(problem, layers, cutoff, lane)
            one_pass = cycle_bound._Pass(search, search.least, search.most)
            keys = [one_pass.keys(k, labels) for k in range(problem.num_stages)]
            yield f"{name} {cutoff} {compared}", [bounds, left, digest([paths, summary(keys)])]


@pytest.mark.parametrize("exponent", [18, 19, 20, 30])
def test_bug_windows_of_many_micro_batches_refuted_every_path(exponent: int) -> None:
    """Like stages of 3 ns without transfers: m micro-batches take 3 (m + p - 1) ns."""
    m, times = 1 << exponent, np.ones((4, 4), dtype=np.int64)
    problem = chain_problem("1f1b", m, times, 2 * times, [0] * 3, [0] * 3)
    _, bounds = windows(problem, 3 * (m + 3) + 1)
    assert bounds.path is not None
    assert bounds.bound_ns <= 3 * (m + 3)
