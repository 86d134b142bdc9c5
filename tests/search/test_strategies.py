"""Sequence parallelism, recomputation and ZeRO in the search, the models and the verifier."""

import pytest

from formulations.instance import Instance
from formulations.instance.search import Overlap
from solver.options import Method, SolveOptions
from solver.search.driver import solve
from tests.best_plans import check_space, check_verified, least_objective
from tests.seeds import one_each
from tests.widened import widened

METHODS: tuple[Method, ...] = ("exact", "cpsat", "milp")


def variant(instance: Instance, **choices: object) -> Instance:
    """The instance with other choices of its search space."""
    return instance.but(search=choices)


@pytest.mark.parametrize("seed", one_each(range(60), 8))
def test_search_equals_brute_force_with_all_strategies(seed: int) -> None:
    """All of recomputation and ZeRO free: the plan is the best of all, and is verified."""
    result = solve(widened(seed))
    assert result.objective == least_objective(widened(seed))
    check_verified(result)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", one_each(range(60), 20))
def test_all_engines_agree_on_zero_2_and_3(seed: int, method: Method) -> None:
    """With ZeRO 2 and 3 alone, CP-SAT, MILP and the exact search find the best plan of all."""
    instance = variant(widened(seed), zero=(2, 3), micro_batches="even")
    assert solve(instance, SolveOptions(method=method)).objective == least_objective(instance)


@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.parametrize("seed", one_each(range(60), 30))
def test_all_engines_agree_with_all_strategies(seed: int, method: Method) -> None:
    """So they do with recomputation and ZeRO 0 to 3 free."""
    assert solve(widened(seed), SolveOptions(method=method)).objective == least_objective(
        widened(seed)
    )


@pytest.mark.parametrize("seed", one_each(range(40), 4))
def test_verifier_lists_the_same_shapes(seed: int) -> None:
    """Search and verifier enumerate one space, on their own."""
    check_space(widened(seed))


@pytest.mark.parametrize("seed", one_each(range(60), 10))
def test_a_wider_space_is_never_slower(seed: int) -> None:
    """Each strategy that is left out can only cost."""
    instance = widened(seed)
    best = solve(instance).objective
    for narrow in ({"recompute": ("none",)}, {"recompute": ("none", "full")}, {"zero": (0, 1)}):
        found = solve(variant(instance, **narrow)).objective
        assert found is None or (best is not None and best <= found)


@pytest.mark.parametrize("seed", one_each(range(60), 10))
def test_a_split_sequence_never_hurts(seed: int) -> None:
    """Sequence parallelism keeps less, and moves and computes no more."""
    plain = variant(widened(seed), sequence_parallel=False, scatter_gather=False)
    split = solve(variant(plain, sequence_parallel=True)).objective
    found = solve(plain).objective
    assert found is None or (split is not None and split <= found)


@pytest.mark.parametrize("seed", one_each(range(60), 10))
def test_more_memory_never_hurts(seed: int) -> None:
    """A smaller head-room, so more memory of every GPU, gives no slower plan."""
    instance = widened(seed)
    tight = solve(instance.but(limits={"memory_headroom": 0.3})).objective
    best = solve(instance).objective
    assert tight is None or (best is not None and best <= tight)


@pytest.mark.parametrize("seed", one_each(range(60), 10))
def test_hiding_more_traffic_never_hurts(seed: int) -> None:
    """Of tensor-parallel traffic, gradient sync, what ZeRO 2 and 3 exchange; brute force agrees."""
    steps = []
    for share in (0.0, 0.3, 0.9):
        overlap = Overlap(tensor_parallel=share, gradient_sync=share, sharding=share)
        one = variant(widened(seed), overlap=overlap, micro_batches="even")
        found = solve(one).objective
        assert found == least_objective(one)
        steps.append(float("inf") if found is None else found)
    assert steps == sorted(steps, reverse=True)
