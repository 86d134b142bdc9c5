"""The list of open configs: its order, and the bound that is told while configs are closed."""

import pytest

from formulations.errors import InstanceError
from solver.options import SolveOptions
from solver.search import open_list
from solver.search.driver import solve
from solver.search.open_list import OpenList
from solver.search.plan_search import PlanSearch
from tests.search.spaces import recorded_searches
from tests.small_instances import expert_instance, random_instance

test_searches_are_the_recorded_ones = recorded_searches()


def test_bound_that_is_told_is_the_least_of_all_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found without listing them, after every configuration that is closed; up to a gap or not."""
    told, plain = list[float | None](), OpenList.least_bound

    def least_bound(open_configs: OpenList, best: float | None) -> float | None:
        told.append(plain(open_configs, best))
        bounds = open_configs.bounds(open_configs.reviewed(best))
        assert told[-1] == min([*bounds, *([] if best is None else [best])], default=None)
        return told[-1]

    monkeypatch.setattr(OpenList, "least_bound", least_bound)
    for seed in range(0, 6, 2):
        options = SolveOptions(gap=0.1 * (seed % 4))
        solve(expert_instance(seed), options, progress=lambda _: None)
    assert told


def test_too_many_configs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_list, "AT_ONCE", 1)
    monkeypatch.setattr(open_list, "MOST_SHAPES", 2)
    with pytest.raises(InstanceError, match="more than 2 combinations of nodes, degrees"):
        PlanSearch(random_instance(3), SolveOptions())
