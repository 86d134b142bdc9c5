"""Piper's problem: dynamic program, CP-SAT and brute force agree."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import ceil
from random import Random

import pytest

from bench.piper_model import PiperModel
from bench.piper_problem import PS_PER_S, Edge, ThroughputProblem, Way, choices
from bench.piper_search import ThroughputSearch
from solver.backends import cpsat
from solver.options import SolveOptions
from solver.result import Status
from tests.seeds import few_and_many

Stage = tuple[int, int, int]  # operators, tp, d


def random_problem(seed: int) -> ThroughputProblem:
    """Three or four operators in a chain, sometimes with one that the last ones read too."""
    draw = Random(seed)
    count = draw.choice([3, 3, 4])

    def way(tp: int, again: bool) -> Way:
        time = draw.randint(1, 9) * PS_PER_S // tp * (2 if again else 1)
        sample = draw.randint(4, 9) // (3 if again else 1)
        return Way(time, draw.randint(0, 20), sample, draw.randint(0, 6))

    def operator() -> dict[int, tuple[Way, ...]]:
        return {tp: tuple(way(tp, again) for again in (False, True)) for tp in (1, 2)}

    pairs = [(n, n + 1) for n in range(count - 1)]
    if draw.random() < 0.5:
        pairs += [(0, n) for n in range(2, count)]
    edges = [
        Edge(a, b, *({tp: draw.randint(0, 4) for tp in (1, 2)} for _ in range(2))) for a, b in pairs
    ]
    return ThroughputProblem(
        operators=tuple(operator() for _ in range(count)),
        edges=tuple(edges),
        gpus=draw.randint(2, 5),
        samples=draw.choice([2, 4, 6]),
        memory_bytes=draw.randint(15, 60),
        bandwidth_bytes_per_s=float(draw.choice([1, 4, 64])),
    )


def all_plans(problem: ThroughputProblem, left: int, gpus: int) -> Iterator[list[Stage]]:
    """Stages from the first on that hold the operators left, whatever they need."""
    if not left:
        yield []
        return
    for stage in range(1, left + 1):
        inside = stage & ~left == 0
        fed = all(
            not (stage >> edge.target & 1 and (left & ~stage) >> edge.source & 1)
            for edge in problem.edges
        )
        if inside and fed:
            for tp, dp in product((1, 2), range(1, gpus + 1)):
                if tp * dp <= gpus and problem.samples % dp == 0:
                    for rest in all_plans(problem, left & ~stage, gpus - tp * dp):
                        yield [(stage, tp, dp), *rest]


def stage_time(problem: ThroughputProblem, stage: Stage, total: int) -> int | None:
    """Time of a stage by Piper's words, over all ways; None if it does not fit."""
    operators, tp, dp = stage
    inside = [n for n in range(len(problem.operators)) if operators >> n & 1]
    moved = 0
    for edge in problem.edges:
        if edge.source in inside and edge.target not in inside:
            moved += 2 * edge.source_bytes[tp]
        if edge.target in inside and edge.source not in inside:
            moved += 2 * edge.target_bytes[tp]
    best = None
    for ways in product(*(problem.operators[n][tp] for n in inside)):
        in_flight = ceil(total / dp)
        held = sum(w.sample_bytes * in_flight + w.fixed_bytes for w in ways)
        if held <= problem.memory_bytes:
            weights = sum(w.weights_bytes for w in ways)
            sent = Fraction(moved, dp) + Fraction(4 * (dp - 1) * weights, dp * problem.samples)
            compute = Fraction(sum(w.time_ps for w in ways), dp)
            time = ceil(compute + sent * PS_PER_S / int(problem.bandwidth_bytes_per_s))
            best = time if best is None else min(best, time)
    return best


def plan_time(problem: ThroughputProblem, plan: Sequence[Stage]) -> int | None:
    """Time of the slowest stage; None if a stage does not fit, or replications are too many."""
    total, slowest = 0, 0
    for stage in reversed(plan):
        total += stage[2]
        time = stage_time(problem, stage, total)
        if time is None:
            return None
        slowest = max(slowest, time)
    return slowest if total <= problem.samples else None


def brute_force(problem: ThroughputProblem) -> int | None:
    """The least time of all plans."""
    plans = all_plans(problem, problem.everything, problem.gpus)
    return min(filter(None, (plan_time(problem, plan) for plan in plans)), default=None)


@pytest.mark.parametrize("seeds", few_and_many(range(300), 30))
def test_three_engines_agree(seeds: Sequence[int]) -> None:
    """Dynamic program, CP-SAT and brute force find the same time, and the plan has it.

    Times are rounded up to picoseconds, where a float may be a picosecond off.
    """
    for seed in seeds:
        problem = random_problem(seed)
        expected, found = brute_force(problem), ThroughputSearch(problem).solve()
        known = list(choices(problem))
        outcome = cpsat.run(PiperModel(problem, known).model, SolveOptions())
        if expected is None:
            assert found is None, seed
            assert outcome.status is Status.INFEASIBLE, seed
            continue
        assert found is not None, seed
        assert abs(found.time_ps - expected) <= 1, seed
        assert outcome.objective == found.time_ps, seed
        made = [(stage.operators, stage.tp, stage.dp) for stage in found.stages]
        checked = plan_time(problem, made)
        assert checked is not None, seed
        assert abs(checked - found.time_ps) <= 1, seed
        assert sum(tp * dp for _, tp, dp in made) <= problem.gpus


def two_stages(memory_bytes: int) -> ThroughputProblem:
    """Two equal operators of 4 s on 2 GPUs; the first stage holds two samples in flight."""
    ways = {1: (Way(4 * PS_PER_S, 0, 10, 5),)}
    edge = Edge(0, 1, {1: 3}, {1: 3})
    return ThroughputProblem((ways, ways), (edge,), 2, 2, memory_bytes, 6.0)


def test_memory_holds_samples_by_distance_from_the_end() -> None:
    """A first stage of two holds 2 x 10 + 5 bytes: 25 are enough, 24 are not.

    Time of a stage: 4 s and 2 x 3 bytes at 6 bytes/s, one second. One stage on two GPUs would take
    (4 + 4) / 2 s, but holds 2 x (10 + 5) bytes.
    """
    found = ThroughputSearch(two_stages(25)).solve()
    assert found is not None
    assert (found.time_ps, len(found.stages)) == (5 * PS_PER_S, 2)
    assert ThroughputSearch(two_stages(24)).solve() is None
    wide = ThroughputSearch(two_stages(30)).solve()
    assert wide is not None
    assert (wide.time_ps, wide.stages[0].dp) == (4 * PS_PER_S, 2)


def test_resync_counts_weights() -> None:
    """Replication 2 of 12 bytes of weights costs 4 x 1 x 12 / (2 x 2) bytes a sample: 2 s."""
    ways = {1: (Way(8 * PS_PER_S, 12, 1, 1),)}
    found = ThroughputSearch(ThroughputProblem((ways,), (), 2, 2, 9, 6.0)).solve()
    assert found is not None
    assert found.time_ps == (8 // 2 + 2) * PS_PER_S
