"""Closing one shape, whatever its schedule: the brute-force optimum, to the nanosecond."""

from collections.abc import Sequence

import pytest

from formulations.decisions import decisions_of
from formulations.instance.search import ScheduleName
from solver.bounds.largest_share import shape_bound_ns
from solver.graph.problem import Intervals
from solver.search.driver import solve
from solver.search.enumeration import enumerate_shape, lacks_memory
from tests.loop_checks import judge
from tests.random_shapes import random_optimum_ns, random_tables, scheduled
from tests.seeds import few_and_many
from tests.small_instances import random_instance

NO_CUTOFF = 1 << 50


def closes(schedule: ScheduleName, seed: int, zones: bool, cutoff: int) -> bool:
    """Whether a shape is closed with its best plan below the cutoff, or that none is."""
    tables, best = random_tables(seed, zones, schedule), random_optimum_ns(seed, zones, schedule)
    answer = enumerate_shape(Intervals(tables), cutoff, 0.0, lambda: False)
    if best is None or best >= cutoff:
        return answer.complete and answer.plan is None
    return (
        answer.complete
        and answer.plan is not None
        and answer.step_time_ns == best
        and judge(tables, decisions_of(tables.instance, answer.plan)) == best
    )


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("schedule", ["zb-h1", "interleaved"])
@pytest.mark.parametrize("seeds", few_and_many(range(100), 17))
def test_shape_equals_brute_force(
    seeds: Sequence[int], schedule: ScheduleName, zones: bool
) -> None:
    """Weight gradients put off and several chunks: shares, zones, memory, blocking sends, ZeRO 1.

    Without a cutoff, and with one at the optimum and one nanosecond above it.
    """
    for seed in seeds:
        assert closes(schedule, seed, zones, NO_CUTOFF), seed
        best = random_optimum_ns(seed, zones, schedule)
        if best is not None:
            assert not lacks_memory(Intervals(random_tables(seed, zones, schedule)))
            assert closes(schedule, seed, zones, best), seed
            assert closes(schedule, seed, zones, best + 1), seed


def test_bug_large_shares_were_charged_weight_gradients_that_their_path_misses() -> None:
    """ZB-H1, uneven shares: the best plan, with two micro-batches on a replica, was refuted."""
    best = random_optimum_ns(28, schedule="zb-h1")
    assert best is not None
    assert closes("zb-h1", 28, False, best + 1)


def test_bug_first_split_of_chunks_was_not_held_against_memory() -> None:
    """Two chunks fit a device each on its own, and not together: that was returned as a plan."""
    assert closes("interleaved", 4, False, NO_CUTOFF)


def test_bug_interleaved_shapes_had_the_bound_of_shapes_without_chunks() -> None:
    """A shape that no plan of fewer, longer stages fits is not therefore empty."""
    known = {seed: random_optimum_ns(seed, schedule="interleaved") for seed in range(12)}
    found = {seed: best for seed, best in known.items() if best is not None}
    assert found
    for seed, best in found.items():
        tables = random_tables(seed, schedule="interleaved")
        assert shape_bound_ns(Intervals(tables), NO_CUTOFF) <= best


def test_bug_local_search_did_not_hold_chunks_against_memory() -> None:
    """Nothing fits: a plan whose two chunks fit a device each on its own was called optimal."""
    assert solve(scheduled(random_instance(21), "interleaved", 21)).plan is None
