"""Dispatch of sequences to replicas: heuristic, bound and brute force."""

import random
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from formulations.errors import PlannerError
from formulations.instance.lengths import Rows
from formulations.lengths.problem import Replica, RowTime, Strategy
from solver.lengths.dispatch import Dispatch, dispatch, dispatch_ns
from tests.recorded import Cases, digest, recorded
from tests.seeds import one_each


def random_step(seed: int) -> tuple[Strategy, tuple[int, ...], Rows]:
    """Up to six sequences, up to three replicas, like or unlike, with short and long rows.

    Times are those of production for odd seeds.
    """
    rng, unit = random.Random(seed), 10_000 ** (seed % 2)

    def time() -> RowTime:
        return RowTime(*(unit * rng.choice(c) for c in ([0.0, 1.5], [1.0, 40.0], [0, 300, 5000])))

    kinds = [Replica(rng.choice([1, 2, 4]), rng.choice([60, 100, 160]), time()) for _ in range(2)]
    replicas = tuple(rng.choice(kinds) for _ in range(rng.randint(1, 3)))
    longest = max(replica.longest_row for replica in replicas)
    lengths = tuple(rng.randint(1, longest) for _ in range(rng.randint(1, 6)))
    return Strategy("random", replicas), lengths, rng.choice(["packed", "padded"])


def is_dispatch(strategy: Strategy, lengths: Sequence[int], rows: Rows, rows_of: Dispatch) -> bool:
    dealt = sorted(i for replica_rows in rows_of for row in replica_rows for i in row)
    return dealt == list(range(len(lengths))) and all(
        sum(lengths[i] for i in row) <= replica.longest_row and (rows == "packed" or len(row) == 1)
        for replica, replica_rows in zip(strategy.replicas, rows_of, strict=True)
        for row in replica_rows
    )


def partitions(items: Sequence[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for k in range(len(rest)):
            yield [*rest[:k], [items[0], *rest[k]], *rest[k + 1 :]]


def least_by_hand(strategy: Strategy, lengths: tuple[int, ...], rows: Rows) -> int:
    """Least time over all partitions into rows and all replicas for them."""
    best = []
    replicas = range(len(strategy.replicas))
    for packing in partitions(range(len(lengths))):
        for where in product(replicas, repeat=len(packing)):
            pairs = list(zip(packing, where, strict=True))
            own = tuple(tuple(tuple(row) for row, at in pairs if at == r) for r in replicas)
            if is_dispatch(strategy, lengths, rows, own):
                best.append(dispatch_ns(strategy, lengths, own))
    return min(best)


@pytest.mark.parametrize("seed", one_each(range(100), 5))
def test_dispatch_lies_between_its_bound_and_twice_the_least(seed: int) -> None:
    strategy, lengths, rows = random_step(seed)
    dispatched = dispatch(strategy, lengths, rows)
    assert is_dispatch(strategy, lengths, rows, dispatched.dispatch)
    assert dispatched.time_ns == dispatch_ns(strategy, lengths, dispatched.dispatch)
    least = least_by_hand(strategy, lengths, rows)
    assert dispatched.bound_ns <= least <= dispatched.time_ns <= 2 * least


@recorded("dispatch")
def test_dispatches_are_the_recorded_ones() -> Cases:
    for seed in range(60):
        strategy, lengths, rows = random_step(seed)
        made = dispatch(strategy, lengths * (1 + seed % 3), rows)
        yield str(seed), [made.time_ns, made.bound_ns, digest(made.dispatch)]


def test_a_sequence_that_no_row_takes_is_refused() -> None:
    strategy = Strategy("alike", (Replica(2, 100, RowTime(0.0, 1.0, 0)),) * 2)
    with pytest.raises(PlannerError, match="a sequence of 101 tokens; strategy alike takes "):
        dispatch(strategy, [101, 1], "packed")
