"""Sums of template sizes: closed forms, dynamic programming and enumeration agree."""

from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.coverage import (
    Coverage,
    last_gap,
    least_consecutive,
    least_covered,
    least_for_merging,
    proof,
    ways,
)

SETS = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)


def counts_by_enumeration(sizes: list[int], most: int) -> dict[int, set[int]]:
    """Numbers of pipelines per number of nodes, from every multiset of sizes."""
    found: dict[int, set[int]] = {nodes: set() for nodes in range(most + 1)}
    for pipelines in range(most // min(sizes) + 1):
        for chosen in combinations_with_replacement(sizes, pipelines):
            if sum(chosen) <= most:
                found[sum(chosen)].add(pipelines)
    return found


@settings(max_examples=60, deadline=None)
@given(SETS, st.integers(0, 4))
def test_counts_are_those_of_every_multiset(sizes: list[int], faults: int) -> None:
    """`pipelines` names exactly the numbers of parts, f + 1 or more, that an enumeration meets."""
    most = 6 * min(sizes) + 3
    known = Coverage(sizes, faults, most)
    for nodes, counts in counts_by_enumeration(sizes, most).items():
        wanted = tuple(sorted(x for x in counts if x > faults))
        assert known.pipelines(nodes) == wanted
        assert known.covers(nodes) == bool(wanted)


def covered_by_sums(sizes: range, faults: int, most: int) -> set[int]:
    """Numbers up to `most` that are sums of f + 1 sizes or more: sums of sums, no closed form."""
    sums, covered = {0}, set[int]()
    for pipelines in range(1, most // sizes[0] + 1):
        sums = {s + size for s in sums for size in sizes if s + size <= most}
        if pipelines > faults:
            covered |= sums
    return covered


@pytest.mark.parametrize("least_size", range(1, 13))
@pytest.mark.parametrize("faults", range(5))
def test_consecutive_sizes_cover_from_p_on_and_not_before(least_size: int, faults: int) -> None:
    """With p sizes nothing from (f+1) n0 on is missing; with p - 1 something is."""
    first = (faults + 1) * least_size
    most = first + 2 * least_size * least_size
    p = least_consecutive(least_size, faults)
    every = set(range(first, most + 1))
    assert covered_by_sums(range(least_size, least_size + p), faults, most) == every
    assert last_gap(range(least_size, least_size + p), faults) == first - 1
    if p > 1:
        fewer = range(least_size, least_size + p - 1)
        assert covered_by_sums(fewer, faults, most) != every
        assert last_gap(fewer, faults) != first - 1


@pytest.mark.parametrize("least_size", range(1, 13))
def test_merging_takes_n0_sizes_and_no_fewer(least_size: int) -> None:
    """0 < m < n0 nodes and a pipeline of n0 make a size for every m, but not with one size less."""
    merged = {least_size + left for left in range(least_size)}
    p = least_for_merging(least_size)
    assert merged <= set(range(least_size, least_size + p))
    assert not merged <= set(range(least_size, least_size + p - 1))


@settings(max_examples=60, deadline=None)
@given(SETS, st.integers(0, 4))
def test_residues_settle_every_number(sizes: list[int], faults: int) -> None:
    """A number is covered iff it reaches the least covered one of its residue."""
    least = least_covered(sizes, faults)
    known = Coverage(sizes, faults, 150)
    for nodes in range(151):
        reached = least.get(nodes % min(sizes))
        assert known.covers(nodes) == (reached is not None and nodes >= reached)


def test_last_gap_of_known_coins() -> None:
    """6, 9 and 20 miss 43 last; 3 and 5 miss 7; 4 and 6 miss every odd number.

    With two parts at least, 3 and 5 miss 5 and 7 too: 5 is a single part.
    """
    assert last_gap([6, 9, 20], 0) == 43
    assert last_gap([3, 5], 0) == 7
    assert last_gap([4, 6], 0) is None
    assert Coverage([3, 5], 1, 8).gaps(1) == (1, 2, 3, 4, 5, 7)


@settings(max_examples=60, deadline=None)
@given(SETS, st.integers(0, 60))
def test_partition_adds_up(sizes: list[int], nodes: int) -> None:
    """For every number of pipelines named, a partition has that many sizes and that sum."""
    known = Coverage(sizes, 0, nodes)
    for pipelines in known.pipelines(nodes):
        parts = known.partition(nodes, pipelines)
        assert sum(parts) == nodes
        assert len(parts) == pipelines
        assert set(parts) <= set(sizes)


def test_partition_that_does_not_exist_is_refused() -> None:
    """7 nodes are not two pipelines of 3 or 5."""
    with pytest.raises(ValueError, match="7 nodes"):
        Coverage([3, 5], 0, 7).partition(7, 2)


def test_no_sizes_or_negative_faults_are_refused() -> None:
    """Sizes are whole numbers from 1 on, and there is one at least."""
    for sizes, faults in (([], 0), ([0, 2], 0), ([2], -1)):
        with pytest.raises(ValueError, match="template sizes"):
            Coverage(sizes, faults, 5)


def test_proof_of_consecutive_sizes() -> None:
    """Sizes 3..4, one fault: 2 pipelines hold 6-8, 3 hold 9-12; p = 1 + ceil(2/2) = 2 suffices."""
    lines = proof([3, 4], 1)
    assert "ceil(N / 4) to floor(N / 3) pipelines, where that is 2 or more" in lines[0]
    assert "at x = 2, 9 >= 9" in lines[1]
    assert "from 6 on" in lines[1]
    assert lines[2] == "2 consecutive sizes from 3 on are needed for that: 1 + ceil((3 - 1) / 2)."
    assert ways([3, 4], 1, range(5, 13)) == (
        "5: not covered",
        "6-8: 2 pipelines",
        "9-11: 3 pipelines",
        "12: 3 to 4 pipelines",
    )


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 4))
def test_numbers_of_pipelines_of_consecutive_sizes(low: int, count: int, faults: int) -> None:
    """As the proof says: N nodes are ceil(N / high) to floor(N / low) pipelines."""
    high = low + count - 1
    known = Coverage(range(low, high + 1), faults, 60)
    for nodes in range(61):
        every = range(max(faults + 1, -(-nodes // high)), nodes // low + 1)
        assert known.pipelines(nodes) == tuple(every)


def test_proof_names_where_too_few_consecutive_sizes_begin_to_suffice() -> None:
    """5 and 6 without faults: 6x + 1 >= 5(x + 1) from x = 4 on, so all from 20 on; 19 is not."""
    lines = proof([5, 6], 0)
    assert "from 20 on" in lines[1]
    assert "5 consecutive sizes" in lines[1]
    assert ways([5, 6], 0, range(19, 21)) == ("19: not covered", "20: 4 pipelines")


def test_proof_of_a_single_size() -> None:
    """Size 4 alone covers multiples of 4, size 1 all numbers."""
    assert "only multiples of 4" in proof([4], 0)[0]
    assert "every number of nodes from 3 on" in proof([1], 2)[0]


def test_proof_of_other_sets() -> None:
    """3 and 5, one fault: 6 = 3+3, 10 = 5+5, 8 = 5+3 settle the residues 0, 1, 2; 7 is last out."""
    lines = proof([3, 5], 1)
    assert "6 = 3 + 3, 10 = 5 + 5, 8 = 5 + 3" in lines[0]
    assert lines[1] == "Every number of nodes from 8 on is covered."
    assert ways([3, 5], 1, range(6, 9)) == ("6: 2 pipelines", "7: not covered", "8: 2 pipelines")


def test_proof_of_sizes_with_a_common_divisor() -> None:
    """4 and 10: only even numbers, from 4 on 4, 8, 10, 12, ..."""
    assert proof([4, 10], 0)[1] == "All sizes are multiples of 2: no other number is ever covered."
    assert ways([4, 10], 0, range(12, 14)) == ("12: 3 pipelines", "13: not covered")


def test_ways_list_counts_with_a_hole() -> None:
    """6 nodes are one pipeline of 6 or six of 1; one node is 1 pipeline, in the singular."""
    assert ways([1, 6], 0, range(6, 7)) == ("6: 1, 6 pipelines",)
    assert ways([1, 6], 0, range(1, 2)) == ("1: 1 pipeline",)
