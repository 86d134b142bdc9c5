"""Instantiation: CP-SAT, MILP, the knapsack and brute force agree."""

from collections.abc import Iterator
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.instantiation import InstantiationModel
from formulations.errors import PlannerError
from formulations.models.cpsat import CpSat
from formulations.pipelines import Instantiation, InstantiationProblem, PipelineKind
from solver.backends import cpsat
from solver.fleets.instantiate import instantiate
from solver.options import SolveOptions
from solver.result import Status
from tests.conftest import present
from tests.twins import CPSAT, TWINS, Twin


def is_allowed(way: Instantiation, problem: InstantiationProblem) -> bool:
    shares, pairs = (
        [m for own in way.shares for m in own],
        [*zip(problem.kinds, way.counts, strict=True)],
    )
    groups = range(len(problem.available))
    used = tuple(sum(kind.nodes[j] * n for kind, n in pairs) for j in groups)
    fits = all(n <= have for n, have in zip(used, problem.available, strict=True))
    every = used == problem.available or not problem.all_nodes
    enough = sum(shares) == problem.micro_batches and sum(way.counts) > problem.faults
    return fits and every and enough and min(shares) >= 1


def ways(problem: InstantiationProblem) -> Iterator[Instantiation]:
    options = [
        (i, m) for i, kind in enumerate(problem.kinds) for m in range(1, len(kind.times_ns) + 1)
    ]
    for pipelines in range(1, problem.micro_batches + 1):
        for chosen in combinations_with_replacement(options, pipelines):
            way = Instantiation.of(len(problem.kinds), *zip(*chosen, strict=True))
            if is_allowed(way, problem):
                yield way


def best_step(problem: InstantiationProblem) -> int | None:
    return min((way.step_ns(problem) for way in ways(problem)), default=None)


@st.composite
def problems(draw: st.DrawFn) -> InstantiationProblem:
    """Up to three kinds on one or two node groups, up to five micro-batches."""
    groups, total = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    node_counts = st.tuples(*[st.integers(0, 3)] * groups).filter(any)
    times = st.lists(st.integers(1, 60), max_size=total).map(sorted)
    long = st.lists(st.integers(0, 30), min_size=12, max_size=12).map(sorted)
    exchanges: st.SearchStrategy[list[int]] = st.one_of(st.just([]), long)
    kinds = draw(st.lists(st.tuples(node_counts, times, exchanges), min_size=1, max_size=3))
    return InstantiationProblem(
        kinds=tuple(PipelineKind(nodes, tuple(t), tuple(e)) for nodes, t, e in kinds),
        available=draw(st.tuples(*[st.integers(0, 6)] * groups)),
        faults=draw(st.integers(0, 2)),
        micro_batches=total,
        all_nodes=draw(st.booleans()),
    )


def solved(problem: InstantiationProblem, twin: Twin) -> int | None:
    """Step of the model's optimum, which must be a choice that keeps every constraint."""
    built = InstantiationModel(twin.model(), problem)
    outcome = twin.run(built.model.native, SolveOptions())
    if outcome.status is Status.INFEASIBLE:
        return None
    assert outcome.status is Status.OPTIMAL
    way = built.extract(present(outcome.values))
    assert is_allowed(way, problem)
    assert way.step_ns(problem) == outcome.objective == outcome.bound
    return int(present(outcome.objective))


def found_step(problem: InstantiationProblem) -> int | None:
    way = instantiate(problem)
    assert way is None or is_allowed(way, problem)
    return None if way is None else way.step_ns(problem)


@settings(max_examples=50, deadline=None)
@given(problems())
def test_knapsack_equals_brute_force(problem: InstantiationProblem) -> None:
    assert found_step(problem) == best_step(problem)


@settings(max_examples=20, deadline=None)
@given(problems())
def test_models_equal_the_knapsack(problem: InstantiationProblem) -> None:
    assert [solved(problem, twin) for twin in TWINS] == [found_step(problem)] * 2


def test_bug_presolve_lost_the_optimum_of_long_steps() -> None:
    """Four pipelines of one node take 66 s; CP-SAT 9.15 swore to 70 s (google/or-tools#5293)."""
    three = PipelineKind((3,), (70_000_000_001, 85_000_000_001, 89_000_000_000))
    single = PipelineKind((1,), (66_000_000_001, 99_000_000_001))
    problem = InstantiationProblem((three, single), (6,), 0, 4, all_nodes=False)
    assert best_step(problem) == solved(problem, CPSAT) == 66_000_000_001


def test_more_mixes_than_memory_holds_are_refused() -> None:
    """500 nodes in each of three groups, up to 1,500 pipelines: 501^3 x 1,501 entries."""
    kinds = (PipelineKind((1, 0, 0), range(9, 18_009, 9), [0] * 2000),)
    with pytest.raises(PlannerError, match="501 x 501 x 501 mixes"):
        instantiate(InstantiationProblem(kinds, (500, 500, 500), 1, 2000))


def test_a_thousand_nodes() -> None:
    """8..15 nodes, times 1/n: the engine's optimum is proved by CP-SAT to be the least."""
    kinds = tuple(
        PipelineKind((n,), [m * (5040 * 8 // n + 13 * (n % 3)) + 40 * n for m in range(1, 513)])
        for n in range(8, 16)
    )
    problem = InstantiationProblem(kinds, (1000,), 3, 2048)
    step = present(found_step(problem))
    shorter = InstantiationModel(CpSat(), problem, latest_ns=step - 1)
    assert cpsat.run(shorter.model.native, SolveOptions()).status is Status.INFEASIBLE
