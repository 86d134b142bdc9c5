"""Sums of template sizes: closed forms, dynamic programming and enumeration agree."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.coverage import (
    Coverage,
    consecutive_for_merging,
    least_consecutive,
    partitions,
    pipelines_rebuilt,
    proof,
    ways,
    worst_rebuilt,
)

SETS = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)


def counts_by_enumeration(sizes: Sequence[int], most: int) -> dict[int, set[int]]:
    """Numbers of pipelines per number of nodes, from every multiset of sizes."""
    counts: dict[int, set[int]] = {nodes: set() for nodes in range(most + 1)}
    for pipelines in range(most // min(sizes) + 1):
        for chosen in combinations_with_replacement(sizes, pipelines):
            if sum(chosen) <= most:
                counts[sum(chosen)].add(pipelines)
    return counts


@settings(max_examples=40, deadline=None)
@given(SETS, st.integers(0, 4))
def test_counts_are_those_of_every_multiset(sizes: list[int], faults: int) -> None:
    """`pipelines` names exactly the numbers of parts, f + 1 or more, that an enumeration meets."""
    most = 6 * min(sizes) + 3
    coverage = Coverage(sizes, faults, most)
    for nodes, counts in counts_by_enumeration(sizes, most).items():
        wanted = tuple(sorted(x for x in counts if x > faults))
        assert coverage.pipelines(nodes) == wanted
        assert coverage.covers(nodes) == bool(wanted)


@pytest.mark.parametrize("least_size", range(1, 9))
@pytest.mark.parametrize("faults", range(4))
def test_consecutive_sizes_cover_from_p_on_and_not_before(least_size: int, faults: int) -> None:
    """With p sizes nothing from (f+1) n0 on is missing; with p - 1 something is."""
    first, p = (faults + 1) * least_size, least_consecutive(least_size, faults)
    every = range(first, first + 2 * least_size * least_size)
    for number in (p, p - 1) if p > 1 else (p,):
        coverage = Coverage(range(least_size, least_size + number), faults, every.stop)
        assert all(map(coverage.covers, every)) == (number == p)


def test_gaps_and_sizes_that_are_none() -> None:
    """3 and 5 miss 7 as every sum does; with two parts at least 5 too, which is a single part."""
    assert Coverage([3, 5], 0, 8).gaps(1) == (1, 2, 4, 7)
    assert Coverage([3, 5], 1, 8).gaps(1) == (1, 2, 3, 4, 5, 7)
    for sizes, faults in (([], 0), ([0, 2], 0), ([2], -1)):
        with pytest.raises(ValueError, match="template sizes"):
            Coverage(sizes, faults, 5)


@pytest.mark.parametrize(
    ("sizes", "faults", "words"),
    [
        # p = 1 + ceil(2 / 2) = 2 suffices
        ([3, 4], 1, ["ceil(N / 4) to floor(N / 3) pipelines, where that is 2 or more"]),
        ([3, 4], 1, ["at x = 2, 9 >= 9", "from 6 on", "2 consecutive sizes from 3 on are needed"]),
        # 6x + 1 >= 5(x + 1) from x = 4 on
        ([5, 6], 0, ["from 20 on", "5 consecutive sizes"]),
        ([4], 0, ["only multiples of 4"]),
        ([1], 2, ["every number of nodes from 3 on"]),
    ],
)
def test_proof(sizes: list[int], faults: int, words: list[str]) -> None:
    """Where consecutive sizes begin to suffice, and which a size alone covers."""
    text = " ".join(proof(sizes, faults))
    assert [word for word in words if word not in text] == []


def test_ways() -> None:
    """Sizes 3, 4, one fault: 2 pipelines hold 6-8, 3 hold 9-12; 6 are one of 6 or six of 1."""
    assert ways([3, 4], 1, range(5, 13)) == (
        "5: not covered",
        "6-8: 2 pipelines",
        "9-11: 3 pipelines",
        "12: 3 to 4 pipelines",
    )
    assert ways([1, 6], 0, range(6, 7)) == ("6: 1, 6 pipelines",)
    assert ways([1, 6], 0, range(1, 2)) == ("1: 1 pipeline",)


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


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True),
    st.integers(0, 2),
    st.integers(2, 14),
)
def test_rebuilt_equals_the_closest_partition(sizes: list[int], faults: int, nodes: int) -> None:
    """The pipelines that join are those that the most similar partition of the rest lacks."""
    coverage = Coverage(sizes, faults, nodes)
    for partition in partitions(coverage.sizes, nodes):
        for failed in set(partition) if len(partition) > faults else ():
            expected = rebuilt_by_comparison(sizes, faults, partition, failed)
            assert pipelines_rebuilt(coverage, partition, failed) == expected


def test_fewer_sizes_take_more_pipelines_apart() -> None:
    """Sizes 3 and 4, f = 1: of 3 + 3 + 3 a failure leaves 8 nodes, 4 + 4: all three are rebuilt.

    With 3, 4 and 5 it is 2 + 3 = 5 beside the other 3. Of 6 = 3 + 3 a failure leaves 5, which is
    no sum.
    """
    assert worst_rebuilt((3, 4), 1, range(9, 10)) == worst_rebuilt((3, 4), 1, range(7, 13)) == 3
    assert consecutive_for_merging(3, 1) == (3, 4, 5)  # with which two join at most
    assert worst_rebuilt((3, 4, 5), 1, range(7, 13)) == 2
    assert worst_rebuilt((3, 4), 1, range(6, 8)) is worst_rebuilt((3, 4), 1, range(0)) is None
