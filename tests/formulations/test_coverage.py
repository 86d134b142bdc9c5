"""Sums of template sizes: closed forms, dynamic programming and enumeration agree."""

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations import coverage as module
from formulations.coverage import (
    Coverage,
    consecutive_for_merging,
    fewest_sizes,
    least_consecutive,
    partitions,
    pipelines_rebuilt,
    proof,
    ways,
    worst_rebuilt,
)
from tests.recorded import Cases, recorded


def gaps(coverage: Coverage, first: int) -> tuple[int, ...]:
    """Numbers from `first` on that are no sum of f + 1 sizes or more."""
    numbers = range(first, coverage.most_nodes + 1)
    return tuple(n for n in numbers if not coverage.makes(n, coverage.faults + 1))


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
        assert coverage.makes(nodes, faults + 1) == bool(wanted)


@pytest.mark.parametrize("least_size", range(1, 9))
@pytest.mark.parametrize("faults", range(4))
def test_consecutive_sizes_cover_from_p_on_and_not_before(least_size: int, faults: int) -> None:
    """With p sizes nothing from (f+1) n0 on is missing; with p - 1 something is."""
    first, p = (faults + 1) * least_size, least_consecutive(least_size, faults)
    every = range(first, first + 2 * least_size * least_size)
    for number in (p, p - 1) if p > 1 else (p,):
        coverage = Coverage(range(least_size, least_size + number), faults, every.stop)
        assert (gaps(coverage, first) == ()) == (number == p)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(0, 2), st.integers(0, 8))
def test_no_smaller_set_covers(least_size: int, faults: int, more: int) -> None:
    first = (faults + 1) * least_size
    sizes, proved = fewest_sizes(least_size, faults, first + more)
    assert proved
    assert gaps(Coverage(sizes, faults, first + more), first) == ()
    for fewer in combinations(range(least_size, first + more + 1), len(sizes) - 1):
        assert not fewer or gaps(Coverage(fewer, faults, first + more), first)


@pytest.mark.parametrize(
    ("faults", "reached"), [(1, (2, 4, 8, 12, 16, 20, 26, 32)), (2, (3, 7, 15, 24, 36))]
)
def test_stamps_reach_what_is_published(faults: int, reached: tuple[int, ...]) -> None:
    """Up to h = f + 1 of k stamps make 1 .. n_h(k) at most (Lunnon 1969, table of h = 2 and 3)."""
    for k, most in enumerate(reached, 1):
        for beyond in (0, 1):
            least_size = most + 1 + beyond
            sizes, proved = fewest_sizes(least_size, faults, 4 * least_size)
            assert proved
            assert len(sizes) == 1 + k + beyond


def test_beyond_the_tries_it_is_the_consecutive_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TRIED", 3)
    assert fewest_sizes(12, 1, 60) == (tuple(range(12, 19)), False)
    assert fewest_sizes(4000, 0, 9000) == (tuple(range(4000, 8000)), True)


def test_sizes_that_are_none_are_refused() -> None:
    for sizes, faults in (([], 0), ([0, 2], 0), ([2], -1)):
        with pytest.raises(ValueError, match="template sizes"):
            Coverage(sizes, faults, 5)


@recorded("coverage")
def test_words_are_the_recorded_ones() -> Cases:
    """Proofs, ways and gaps; how many pipelines are rebuilt at most.

    Sizes 3 and 4, one fault: p = 1 + ceil(2 / 2) = 2 sizes suffice from 6 on. Of 3 + 3 + 3 a
    failure leaves 8 nodes, 4 + 4: all three are rebuilt; with 3, 4 and 5 two, 2 + 3 beside 3.
    """
    for sizes, faults in (((3, 4), 1), ((5, 6), 0), ((4,), 0), ((1,), 2), ((1, 6), 0), ((3, 5), 1)):
        coverage, merging = Coverage(sizes, faults, 40), consecutive_for_merging(sizes[0], faults)
        rebuilt = [worst_rebuilt(sizes, faults, range(9, n)) for n in (9, 10, 13, 16)]
        words = [list(proof(sizes, faults)), list(ways(sizes, faults, range(1, 15)))]
        again = [
            [pipelines_rebuilt(coverage, p, p[0]) for p in partitions(coverage.sizes, n)]
            for n in (6, 9, 12)
        ]
        yield f"{sizes} {faults} rebuilt", again
        yield f"{sizes} {faults}", [*words, list(gaps(coverage, 1)), list(merging), rebuilt]
    assert worst_rebuilt((3, 4), 1, range(9, 10)) == 3
    assert worst_rebuilt((3, 4, 5), 1, range(7, 13)) == 2
    assert worst_rebuilt((3, 4), 1, range(6, 8)) is None


@pytest.mark.parametrize("places", [(), (0,), (3,), (2, 0, 3), (1, 2, 1, 2)])
def test_places_are_divided_in_every_way(places: tuple[int, ...]) -> None:
    """Those of all counts that have the total, in their order."""
    everything = list(product(*(range(count + 1) for count in places)))
    for total in range(sum(places) + 2):
        assert list(module.divided(total, places)) == [c for c in everything if sum(c) == total]
