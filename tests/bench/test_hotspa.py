"""Table 3 of HotSPa (SOSP 2024), held against what we choose."""

from pathlib import Path

import pytest

from bench.hotspa import problem, published, table
from formulations.lengths.tour import Group, Tour, step_ns
from solver.lengths.choose import choose
from solver.result import Status

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
