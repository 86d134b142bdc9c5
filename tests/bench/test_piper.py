"""Piper's problem: dynamic program and CP-SAT agree, with each other and with what is published."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from bench.piper import EQUAL, read_problem
from bench.piper_problem import (
    PS_PER_S,
    Edge,
    PiperModel,
    ThroughputProblem,
    ThroughputSearch,
    Way,
    choices,
)
from solver.backends import cpsat
from solver.options import SolveOptions
from solver.result import Status
from tests.seeds import few_and_many, one_each


@pytest.mark.parametrize("number", one_each(range(13), 13))
def test_published_value_is_the_optimum(number: int, reference: Path) -> None:
    """Neither better nor worse than Piper's public program; no plan where it has none."""
    case = json.loads((reference / "piper" / "expected.json").read_text())["cases"][number]
    graph = json.loads((reference / "piper" / case["file"]).read_text())
    problem = read_problem(graph, case)
    found = ThroughputSearch(problem).solve()
    time_s = None if found is None else found.time_ps / PS_PER_S
    assert time_s == (None if case["tps"] is None else pytest.approx(case["tps"], rel=EQUAL))
    # A longer model repeats the last layer but one, none of which reads the mask
    longer = read_problem(graph, case | {"transformers": 96})
    more = 96 - case["transformers"]
    assert len(longer.operators) == len(problem.operators) + more
    assert len(longer.edges) == len(problem.edges) + more


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


@pytest.mark.parametrize("seeds", few_and_many(range(300), 30))
def test_both_engines_agree(seeds: Sequence[int]) -> None:
    """Dynamic program and CP-SAT find the same time, within the GPUs; nothing below it exists."""
    for seed in seeds:
        problem = random_problem(seed)
        search = ThroughputSearch(problem)
        found = search.solve()
        outcome = cpsat.run(PiperModel(problem, list(choices(problem))).model, SolveOptions())
        if found is None:
            assert outcome.status is Status.INFEASIBLE, seed
            continue
        assert outcome.objective == found.time_ps, seed
        assert sum(stage.tp * stage.dp for stage in found.stages) <= problem.gpus
        better = PiperModel(problem, search.better_than(found.time_ps)).model
        assert cpsat.run(better, SolveOptions()).status is Status.INFEASIBLE
