"""Bounds by windows: below every path, no path below the cutoff loses an edge, and tight."""

import numpy as np
import pytest

from bench.splits import chain_problem
from formulations.costs.placement import Placer
from solver.bounds import cycle_bound
from solver.bounds.cycle_bound import by_windows
from solver.bounds.latency_bottleneck import latencies, least_term, tighten
from solver.enumeration.engine import SplitOutcome, solve_split
from solver.graph.all_orders import free_order
from solver.graph.edges import Layers, build_layers, to_go
from solver.graph.problem import Intervals, SplitProblem
from tests.enumeration.test_engine import NO_CUTOFF, even_tables, random_chain
from tests.seeds import one_each


def tightened(problem: SplitProblem, cutoff: int) -> Layers:
    """Edges of a problem that has a split below the cutoff."""
    layers = tighten(problem, build_layers(problem, cutoff), cutoff)
    assert layers is not None
    return layers


def by_stages_ns(problem: SplitProblem, layers: Layers) -> int:
    """Bound of all paths by the least latency and the least that their slowest stage adds."""
    return int(to_go(layers, latencies(layers, 0))[0][0]) + least_term(layers, 0)


def keeps(problem: SplitProblem, best: SplitOutcome, lane: int = 0) -> bool:
    """Whether the bound is no higher than the optimum just allowed, and keeps its edges."""
    assert best.step_time_ns is not None
    assert best.split is not None
    assert best.arcs is not None
    layers = tightened(problem, best.step_time_ns + 1)
    bounds = by_windows(problem, layers, best.step_time_ns + 1, lane=lane)
    return bounds.bound_ns <= best.step_time_ns and all(
        ((edges.arc == arc) & (edges.start == a) & (edges.end == b) & useful).any()
        for edges, useful, arc, a, b in zip(
            layers, bounds.useful, best.arcs, best.split, best.split[1:], strict=False
        )
    )


def long_chain(seed: int) -> SplitProblem:
    """12 like layers on 4 stages with long transfers, and many micro-batches: windows matter."""
    rng = np.random.default_rng(seed)
    forward = np.outer(rng.integers(1, 4, 4), rng.integers(8, 12, 12))
    send = rng.integers(0, 30, 3).tolist()
    return chain_problem("1f1b", int(rng.integers(8, 30)), forward, 2 * forward, send, send)


def few_micro_batches(seed: int) -> SplitProblem:
    """Up to 7 stages and about as many micro-batches: early stages only fill and drain."""
    rng = np.random.default_rng(seed)
    p = int(rng.integers(3, 8))
    forward = np.outer(rng.integers(1, 5, p), rng.integers(30_000, 120_000, p + 4))
    backward = forward * rng.choice([1, 2, 3], forward.shape)
    send = rng.integers(0, rng.choice([20_000, 400_000]), p - 1).tolist()
    return chain_problem(
        "1f1b", int(rng.integers(max(2, p - 3), p + 6)), forward, backward, send, send
    )


@pytest.mark.parametrize("seed", one_each(range(48), 8))
def test_the_best_split_of_a_chain_stays_below_the_cutoff(seed: int) -> None:
    """Both schedules, blocking or not: a bound never above the optimum."""
    problem = random_chain(seed)
    assert keeps(problem, solve_split(problem, NO_CUTOFF))


@pytest.mark.parametrize("seed", one_each(range(24), 6))
@pytest.mark.parametrize("compared", [0, 200])
@pytest.mark.parametrize("few", [False, True])
def test_windows_stay_below_the_optimum(
    monkeypatch: pytest.MonkeyPatch, seed: int, compared: int, few: bool
) -> None:
    """Also if labels have to be merged to one, and if the pipeline hardly fills."""
    monkeypatch.setattr(cycle_bound, "MOST_COMPARED", compared)
    problem = few_micro_batches(seed) if few else long_chain(seed)
    assert keeps(problem, solve_split(problem, NO_CUTOFF))


@pytest.mark.parametrize("seed", one_each(range(48), 8))
def test_every_lane_of_all_orders_stays_below_the_optimum(seed: int) -> None:
    """Replicas on unlike GPUs, any node order, tied embeddings: each lane alone is a bound."""
    tables = even_tables(seed)
    if tables is None:
        pytest.skip("no such configuration")
    problem = free_order(Intervals(tables), Placer(tables))
    assert problem is not None
    best = solve_split(problem, NO_CUTOFF)
    if best.step_time_ns is None:
        pytest.skip("no split fits")
    assert all(keeps(problem, best, lane) for lane in range(problem.num_lanes))


def test_two_like_stages_turn_through_their_transfers() -> None:
    """Three stages of 3 ns each, 1 ns apart, 9 micro-batches.

    Latency 9 + 4; the last turn from stage 0 takes 13 for 3 micro-batches; N = 5, all three stages
    take C = 13, S = 4, n = 3: (5 * 13 - 4) / 3 = 20.3. Together 46.3, of stages alone 13 + 8 * 3.
    """
    times = np.ones((3, 3), dtype=np.int64)
    problem = chain_problem("1f1b", 9, times, 2 * times, [1, 1], [1, 1])
    best = solve_split(problem, NO_CUTOFF).step_time_ns
    assert best is not None
    bounds = by_windows(problem, tightened(problem, best + 1), best + 1)
    assert 46 <= bounds.bound_ns <= best


def test_windows_are_tighter_than_single_stages() -> None:
    """On long chains the bound is nearer to the optimum than that of single stages."""
    distances = []
    for seed in range(10):
        problem = long_chain(seed)
        best = solve_split(problem, NO_CUTOFF).step_time_ns
        assert best is not None
        layers = tightened(problem, best + 1)
        found = (
            by_stages_ns(problem, layers),
            by_windows(problem, layers, best + 1).bound_ns,
        )
        distances.append([1 - ns / best for ns in found])
    by_stages, by_turns = np.mean(distances, axis=0)
    assert by_turns < by_stages / 2


@pytest.mark.parametrize("exponent", [18, 19, 20, 30])
def test_bug_windows_of_many_micro_batches_refuted_every_path(exponent: int) -> None:
    """Like stages of 3 ns without transfers: m micro-batches take 3 (m + p - 1) ns."""
    m, times = 1 << exponent, np.ones((4, 4), dtype=np.int64)
    problem = chain_problem("1f1b", m, times, 2 * times, [0] * 3, [0] * 3)
    step_ns = 3 * (m + 3)
    layers = tightened(problem, step_ns + 1)
    bounds = by_windows(problem, layers, step_ns + 1)
    assert bounds.path is not None
    assert bounds.bound_ns <= step_ns


@pytest.mark.parametrize("seed", one_each(range(12), 4))
@pytest.mark.parametrize("stages", [4, 30])
def test_range_of_products_is_as_the_door_says(seed: int, stages: int) -> None:
    """With the longest path just allowed, windows say as much as with times of some ns.

    With all operations one after the other as long as `formulations.costs.magnitude` lets through.
    """
    rng = np.random.default_rng(seed)
    p, m = stages, int(rng.integers(stages // 2, 3 * stages))
    forward = rng.integers(8, 12, (p, p + 1 + 4 // p)) * rng.integers(1, 3, (p, 1))
    send = rng.integers(0, 30, p - 1)
    longest_ns = m * (3 * int(forward.max(axis=0).sum()) + 2 * int(send.sum()))
    bounds = []
    for unit in (1000, min(1 << 52, (1 << 59) // (p + 2)) // longest_ns):
        times, sends = forward * unit, (send * unit).tolist()
        problem = chain_problem("1f1b", m, times, 2 * times, sends, sends)
        found = by_windows(problem, tightened(problem, longest_ns * unit), longest_ns * unit)
        assert found.path is not None
        bounds.append(found.bound_ns / unit)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-4)
