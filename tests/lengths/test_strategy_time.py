"""Promises of formulations.lengths.strategy_time: what a strategy takes for a set of lengths."""

from itertools import combinations

import pytest

from formulations.errors import PlannerError
from formulations.instance.lengths import Rows
from formulations.lengths.problem import Atom, Replica, RowTime, Strategy
from formulations.lengths.strategy_time import NEVER, StrategyTimes, strategy_times
from tests.mixed_lengths import random_mixed, set_ns
from tests.recorded import Cases, digest, recorded
from tests.seeds import each_of


@pytest.mark.parametrize("rows", ["packed", "padded"])
@each_of(range(60), 12)
def test_times_are_those_by_definition(seed: int, rows: Rows) -> None:
    """Sets and intervals take what they take in fractions, replicas alike or not."""
    mixed = random_mixed(seed, rows=rows)
    known = range(len(mixed.atoms))
    for q, times in enumerate(strategy_times(mixed)):
        for size in range(1, len(known) + 1):
            for atoms in combinations(known, size):
                assert times.of_set(atoms) == set_ns(mixed, q, atoms)
        intervals = times.of_intervals()
        for i, j in combinations(range(len(known) + 1), 2):
            expected = set_ns(mixed, q, range(i, j))
            assert intervals[i, j] == (NEVER if expected is None else expected)


@recorded("strategy_time")
def test_rows_of_replicas_are_the_recorded_ones() -> Cases:
    for seed in range(20):
        mixed = random_mixed(seed, rows="padded" if seed % 3 == 0 else "packed")
        yield str(seed), digest([t.rows(t.content).tolist() for t in strategy_times(mixed)])


@pytest.mark.parametrize(
    ("rows", "time_ns"),
    [
        # 10 tokens: 120 ns, 40: 1680 ns; work 2160, half of it 1080, but the longest alone takes
        # 1680; 80 tokens are 1 row on each: 7; the longest row is the one of 40 tokens, 1687 (four
        # of 10: 487), two of them fill.
        ("packed", 1680 + 7 + 2 * 1687),
        # A row of 10 tokens takes 127 ns, of 40 1687: half of 2195 is 1098, the longest alone 1687.
        ("padded", 1687 + 2 * 1687),
    ],
)
def test_bug_sequences_are_not_divided(rows: Rows, time_ns: int) -> None:
    """Four sequences of 10 and one of 40 tokens, in rows of 40, by hand."""
    replica = Replica(3, 40, RowTime(per_square_ns=1.0, per_token_ns=2.0, per_row_ns=7))
    times = StrategyTimes(Strategy("alike", (replica,) * 2), (Atom(10, 4), Atom(40, 1)), rows)
    assert times.of_set((0, 1)) == time_ns


def test_bug_many_short_sequences_were_days() -> None:
    """20,000 of a token are 20 s, although a row may hold a sequence of 100 s as well.

    Times whose products would leave 64 bits are an error in one line.
    """
    fast = Strategy("fast", (Replica(1, 100_000, RowTime(0.0, 1e6, 0)),))
    times = StrategyTimes(fast, (Atom(1, 20_000), Atom(100_000, 1)), "packed")
    assert times.of_set((0, 1)) == 120 * 10**9
    slow = Strategy("slow", (Replica(1, 10, RowTime(0.0, 1e13, 0)),))
    with pytest.raises(PlannerError, match=r"strategy slow: one replica would take [\d,]+ s"):
        StrategyTimes(slow, (Atom(10, 4),), "packed")
