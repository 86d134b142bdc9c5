"""Experts and sequences that GPUs share, in the plan space: proved, recounted, and worth it."""

import pytest

from solver.options import Method, SolveOptions
from solver.result import Status
from solver.search.driver import solve
from solver.search.open_list import OpenList
from tests.best_plans import check_verified, least_ns
from tests.expert_instances import expert_instance
from tests.random_shapes import zoned
from tests.seeds import one_each


@pytest.mark.parametrize("seed", one_each(range(60), 12))
def test_search_equals_brute_force_and_is_verified(seed: int) -> None:
    """The least step over every shape, order, split and share, with experts and context."""
    instance = expert_instance(seed)
    if seed % 4 == 1:
        instance = zoned(instance, seed)
    result = solve(instance)
    assert result.step_time_ns == least_ns(instance)
    assert (result.status is Status.OPTIMAL) == (result.step_time_ns is not None)
    check_verified(result)


@pytest.mark.parametrize("method", ["cpsat", "milp"])
@pytest.mark.parametrize("seed", one_each(range(12), 6))
def test_models_agree(seed: int, method: Method) -> None:
    """CP-SAT and MILP over all shapes at once prove the same step."""
    instance = expert_instance(seed)
    exact, other = solve(instance), solve(instance, SolveOptions(method=method))
    assert (other.status, other.step_time_ns) == (exact.status, exact.step_time_ns)


@pytest.mark.parametrize("seed", one_each(range(30), 6))
def test_more_choices_are_never_slower(seed: int) -> None:
    """More degrees of experts and context, whole experts too: all plans of the smaller space."""
    instance = expert_instance(seed)
    steps = []
    split, whole = ("tp",), (1, "tp")
    choices = [((1,), split, (1,)), ((1, 2), split, (1,)), ((1, 2), whole, (1,))]
    for ep, etp, cp in (*choices, ((1, 2, 4), whole, (1, 2))):
        fields = {"expert_parallel": ep, "expert_tensor_parallel": etp, "context_parallel": cp}
        steps.append(solve(instance.but(search=fields)).step_time_ns)
    known = [step if step is not None else float("inf") for step in steps]
    assert known == sorted(known, reverse=True)


def test_bound_that_is_told_is_the_least_of_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found without listing them, after every shape that is closed; up to a gap or not."""
    told, plain = list[float | None](), OpenList.least_bound

    def least_bound(open_list: OpenList, best: float | None) -> float | None:
        told.append(plain(open_list, best))
        bounds = open_list.bounds(open_list.reviewed(best))
        assert told[-1] == min([*bounds, *([] if best is None else [best])], default=None)
        return told[-1]

    monkeypatch.setattr(OpenList, "least_bound", least_bound)
    for seed in range(6):
        options = SolveOptions(gap=0.2 * (seed % 2))
        solve(expert_instance(seed), options, progress=lambda _: None)
    assert told
