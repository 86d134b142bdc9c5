"""What other planners published, held against what we find."""

import json
from pathlib import Path

import pytest

from bench.hotspa import problem, published, table
from bench.oobleck_templates import oobleck_templates, oobleck_value, stage_times
from bench.piper import EQUAL, read_problem
from bench.piper_problem import PS_PER_S, ThroughputSearch
from bench.planner import PS_PER_MS, places, read_case
from formulations.lengths.tour import Group, Tour, step_ns
from solver.graph.places import PlaceCosts
from solver.lengths.choose import choose
from solver.result import Status
from tests.seeds import one_each

# Table 3 of HotSPa (SOSP 2024), held against what we choose.

BEST_NS = {"CommonCrawl": 32_000_000_000, "GitHub": 118_400_000_000}


@pytest.mark.parametrize("data_set", BEST_NS)
def test_published_steps_cost_what_is_published(data_set: str, reference: Path) -> None:
    """Cells and switches of the four combinations add up to their totals.

    We choose nothing worse, in ascending order as in any, proved, of what was measured alone.
    """
    known = table()
    mixed, totals = problem(known, data_set), published(known, data_set)
    names = [strategy.name for strategy in mixed.strategies]
    for name, total_ns in totals.items():
        groups, first = [], 0
        for group in known["combinations"][name]:
            stop = [atom.tokens for atom in mixed.atoms].index(group["range"][1]) + 1
            strategy = names.index(str(tuple(group["strategy"])).replace(" ", ""))
            groups.append(Group(strategy, tuple(range(first, stop))))
            first = stop
        assert step_ns(mixed, Tour(groups[-1].strategy, tuple(groups))) == total_ns
    free, ascending = choose(mixed, "free"), choose(mixed, "ascending")
    assert free.status is ascending.status is Status.OPTIMAL
    assert BEST_NS[data_set] == free.step_ns <= ascending.step_ns <= min(totals.values())


# Oobleck's objective: its formula, its optimum, and the public planner's templates.

PLANNER = [f"L24_N{nodes}_G{gpus}" for nodes in (8, 16, 24) for gpus in (1, 4, 8)]


@pytest.mark.parametrize("name", one_each(PLANNER, 9))
def test_never_above_the_public_planner(name: str, reference: Path) -> None:
    """Every template of every stored output; its own value is what it reported.

    22 nodes of 8 GPUs, 24 layers: it reports 834.04215 ms, as it never tries 24 stages.
    """
    case = read_case(reference / "oobleck" / "planner" / f"{name}.json")
    tables = places(case)
    best = oobleck_templates(PlaceCosts(tables, tables), {n: [(n,)] for n in case.templates})
    values = {n: oobleck_value(stage_times(tables, template)) for n, template in best.items()}
    for n, theirs in case.templates.items():
        reported = oobleck_value(stage_times(tables, theirs.template))
        assert reported == pytest.approx(theirs.reported_ms * PS_PER_MS, rel=1e-12)
        assert values[n] <= reported
    if name == "L24_N24_G8":
        assert (best[22].num_stages, values[22]) == (24, 833_752_000_000)


# Piper's problem: dynamic program and CP-SAT agree, with each other and with what is published.


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
