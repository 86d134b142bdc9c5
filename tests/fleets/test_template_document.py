"""Fewest template sizes: CP-SAT equals the enumeration of all sets; so does what merging costs."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.coverage import (
    Coverage,
    consecutive_for_merging,
    partitions,
    pipelines_rebuilt,
    worst_rebuilt,
)
from formulations.models.cpsat import CpSat
from formulations.models.template_set import TemplateSet
from solver.fleets.template_document import (
    CoverageError,
    fewest_sizes,
    merging_range,
    worst_rebuilt_in,
)
from solver.result import Status
from tests.twins import TWINS, Twin, has_solution, solved


def fewest_by_enumeration(nodes: range, least_size: int, faults: int) -> int:
    """Least cardinality of a set that covers, trying all sets by cardinality."""
    sizes = range(least_size, nodes[-1] + 1)
    for cardinality in range(1, len(sizes) + 1):
        for chosen in combinations(sizes, cardinality):
            if not Coverage(chosen, faults, nodes[-1]).gaps(nodes[0]):
                return cardinality
    raise AssertionError("all sizes together cover")


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2), st.integers(0, 5), st.integers(0, 5))
def test_no_smaller_set_covers(least_size: int, faults: int, skip: int, more: int) -> None:
    """The model's set covers the range and is as small as the smallest of all sets."""
    first = (faults + 1) * least_size + skip
    nodes = range(first, first + more + 1)
    found = fewest_sizes(nodes, least_size, faults)
    assert found.fewest
    assert Coverage(found.sizes, faults, nodes[-1]).gaps(nodes[0]) == ()
    assert len(found.sizes) == fewest_by_enumeration(nodes, least_size, faults)


def test_sizes_below_n0_are_not_offered() -> None:
    """7 nodes as two pipelines are 3 + 4, 2 + 5, 1 + 6: with n0 = 3 only 3 + 4 is left."""
    assert fewest_sizes(range(7, 8), 3, 1).sizes == (3, 4)
    assert len(fewest_sizes(range(7, 8), 1, 1).sizes) == 1  # seven of 1


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("least_size", range(1, 5))
@pytest.mark.parametrize("faults", range(3))
def test_the_first_counts_settle_a_long_range(twin: Twin, least_size: int, faults: int) -> None:
    """The model of all counts from (f + 1) n0 on needs no more sizes than that of the first n0."""
    first = (faults + 1) * least_size
    nodes = range(first, first + 3 * least_size)
    outcome = solved(TemplateSet(twin.model(), nodes, least_size, faults).model)
    assert outcome.status is Status.OPTIMAL
    assert outcome.objective == len(fewest_sizes(nodes, least_size, faults).sizes)


def test_fewer_than_consecutive_sizes_may_do() -> None:
    """n0 = 5, f = 1, 20 to 26 nodes: p = 3 sizes are for all counts from 10 on; 5 and 6 do here.

    20-24 are 4 pipelines of 5 or 6, 25 and 26 are 5. Oobleck takes five sizes, 5 to 9.
    """
    assert consecutive_for_merging(5, 1) == (5, 6, 7, 8, 9)
    assert len(fewest_sizes(range(20, 27), 5, 1).sizes) == 2
    assert len(fewest_sizes(range(10, 27), 5, 1).sizes) == 3


@pytest.mark.parametrize("sizes", [(3, 4), (3, 5)])
def test_the_model_asks_for_the_number_of_pipelines(sizes: tuple[int, ...]) -> None:
    """8 = 4 + 4 = 3 + 5 takes two pipelines, not three of 3 or more: 3 faults have no room."""
    assert Coverage(sizes, 1, 8).covers(8)
    with pytest.raises(CoverageError, match="allowed: 9 nodes or more"):
        fewest_sizes(range(8, 9), 3, 2)


def test_a_set_that_leaves_a_gap_is_no_solution() -> None:
    """With 3 and 5 alone allowed, 7 nodes are no sum of two: the model is infeasible."""
    built = TemplateSet(CpSat(), range(6, 9), 3, 1)
    for size, literal in built.chosen.items():
        if size == 4:
            built.model.some_of(0, (), literal)
    assert not has_solution(built.model)


@pytest.mark.parametrize("nodes", [range(5, 9), range(6, 6)])
def test_a_range_that_cannot_be_covered_is_refused(nodes: range) -> None:
    """Two pipelines of 3 take 6 nodes, and there must be a count."""
    with pytest.raises(ValueError, match="sizes from 3"):
        TemplateSet(CpSat(), nodes, 3, 1)


def rebuilt_by_comparison(
    sizes: Sequence[int], faults: int, partition: tuple[int, ...], failed: int
) -> int | None:
    """Fewest pipelines given up, over all partitions of the nodes that are left."""
    others = Counter(partition) - Counter([failed])
    kept = [
        (Counter(after) & others).total()
        for after in partitions(sorted(sizes), sum(partition) - 1)
        if len(after) > faults
    ]
    return len(partition) - max(kept) if kept else None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True),
    st.integers(0, 2),
    st.integers(2, 16),
)
def test_rebuilt_equals_the_closest_partition(sizes: list[int], faults: int, nodes: int) -> None:
    """The pipelines that join are those that the most similar partition of the rest lacks."""
    known = Coverage(sizes, faults, nodes)
    for partition in partitions(known.sizes, nodes):
        for failed in set(partition) if len(partition) > faults else ():
            expected = rebuilt_by_comparison(sizes, faults, partition, failed)
            assert pipelines_rebuilt(known, partition, failed) == expected


@pytest.mark.parametrize("least_size", range(1, 5))
@pytest.mark.parametrize("faults", range(3))
def test_oobleck_s_sizes_rebuild_two_pipelines_at_most(least_size: int, faults: int) -> None:
    """As long as f + 1 pipelines can be kept, a failure concerns one other pipeline at most.

    The worst is a merge: it takes a pipeline away, so there must be f + 2 of n0.
    """
    sizes = consecutive_for_merging(least_size, faults)
    first = (faults + 2) * least_size
    for nodes in range(first, first + 6):
        known = Coverage(sizes, faults, nodes)
        for partition in partitions(sizes, nodes):
            for failed in set(partition) if len(partition) > faults + 1 else ():
                rebuilt = pipelines_rebuilt(known, partition, failed)
                assert rebuilt is not None
                assert rebuilt <= 2


def test_fewer_sizes_take_more_pipelines_apart() -> None:
    """Sizes 3 and 4, f = 1: of 3 + 3 + 3 a failure leaves 8 nodes, 4 + 4: all three are rebuilt.

    With 3, 4 and 5 it is 2 + 3 = 5 beside the other 3.
    """
    assert worst_rebuilt((3, 4), 1, 9) == 3
    assert worst_rebuilt((3, 4, 5), 1, 9) == 2
    assert worst_rebuilt_in((3, 4), 1, range(7, 13)) == 3
    assert worst_rebuilt_in((3, 4, 5), 1, range(7, 13)) == 2


def test_numbers_of_nodes_to_merge_on() -> None:
    """Above the least, 4 pairs for 3 faults, up to twelve more, and no more than there are."""
    assert merging_range(2, 3, 100) == range(9, 21)
    assert merging_range(2, 3, 10) == range(9, 11)
    assert worst_rebuilt_in((2, 3), 3, merging_range(2, 3, 8)) is None


def test_a_failure_that_leaves_an_uncovered_number() -> None:
    """Of 6 = 3 + 3 one failure leaves 5, which no two pipelines of 3 or 4 use; 5 is no sum."""
    assert worst_rebuilt((3, 4), 1, 6) is None
    assert worst_rebuilt_in((3, 4), 1, range(6, 8)) is None
    with pytest.raises(ValueError, match="5 nodes"):
        worst_rebuilt((3, 4), 1, 5)
