"""Dispatch of sequences to replicas: heuristic, bound, model and brute force."""

import math
import random
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest

from formulations.cpsat.dispatch import most_rows
from formulations.errors import PlannerError
from formulations.lengths.dispatch import Dispatch, dispatch_ns, is_dispatch
from formulations.lengths.problem import Replica, Rows, RowTime, Strategy
from solver.lengths import dispatch_bound
from solver.lengths.dispatch import dispatch
from solver.lengths.dispatch_bound import fewest_rows, least_dispatch_ns
from solver.lengths.dispatcher import Dispatcher
from solver.lengths.exchange import Exchange
from solver.options import SolveOptions

EXACT = SolveOptions(time_limit_s=60.0)


def random_step(seed: int) -> tuple[Strategy, tuple[int, ...], Rows]:
    """Up to six sequences, up to three replicas, like or unlike, with short and long rows.

    Times are those of production for odd seeds.
    """
    rng, unit = random.Random(seed), 10_000 ** (seed % 2)
    kinds = [
        Replica(
            rng.choice([1, 2, 4]),
            rng.choice([60, 100, 160]),
            RowTime(
                unit * rng.choice([0.0, 1.5]),
                unit * rng.choice([1.0, 40.0]),
                unit * rng.choice([0, 300, 5_000]),
            ),
        )
        for _ in range(2)
    ]
    replicas = tuple(rng.choice(kinds) for _ in range(rng.randint(1, 3)))
    longest = max(replica.longest_row for replica in replicas)
    lengths = tuple(rng.randint(1, longest) for _ in range(rng.randint(1, 6)))
    return Strategy("random", replicas), lengths, rng.choice(["packed", "padded"])


def partitions(items: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to put items into rows."""
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
    for packing in partitions(range(len(lengths))):
        for where in product(range(len(strategy.replicas)), repeat=len(packing)):
            own = tuple(
                tuple(tuple(row) for row, at in zip(packing, where, strict=True) if at == r)
                for r in range(len(strategy.replicas))
            )
            if is_dispatch(strategy, lengths, rows, Dispatch(own)):
                best.append(dispatch_ns(strategy, lengths, Dispatch(own)))
    return min(best)


@pytest.mark.parametrize("seed", range(40))
def test_dispatch_is_the_best_of_all(seed: int) -> None:
    """Asked for gap 0, the dispatch found takes the least time of all, and the bound says so."""
    strategy, lengths, rows = random_step(seed)
    found = dispatch(strategy, lengths, rows, EXACT)
    assert is_dispatch(strategy, lengths, rows, found.dispatch)
    assert found.time_ns == dispatch_ns(strategy, lengths, found.dispatch)
    least = least_by_hand(strategy, lengths, rows)
    assert (found.time_ns, found.bound_ns) == (least, least)


def test_bug_rows_that_take_no_time_by_token_were_left_out() -> None:
    """Rows of 300 ns whatever they hold: one sequence of a token takes a row."""
    flat = Replica(8, 1600, RowTime(0.0, 0.0, 300))
    assert most_rows(flat, (1,), "packed", 2400) == 1


@pytest.mark.parametrize("seed", range(40, 100))
def test_bound_is_never_above_the_least_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What filling proves is no more than the best of all dispatches, with rows counted or not."""
    strategy, lengths, rows = random_step(seed)
    time = Dispatcher(strategy, lengths, rows).time_ns
    counted = least_dispatch_ns(strategy, lengths, rows, time)
    monkeypatch.setattr(dispatch_bound, "MOST_ROWS", 0)
    bounds = counted, least_dispatch_ns(strategy, lengths, rows, time)
    assert max(bounds) <= least_by_hand(strategy, lengths, rows)


def test_bound_of_like_replicas_by_hand() -> None:
    """Two replicas of two stages; times 10, 4, 4 ns, c = 0: 10 alone takes 20, 4 + 4 + 4 = 12."""
    replica = Replica(2, 100, RowTime(0.0, 1.0, 0))
    found = dispatch(Strategy("two", (replica, replica)), [4, 10, 4], "packed", EXACT)
    assert (found.time_ns, found.bound_ns) == (20, 20)


#: Replicas with the times of LLaMA-2 32B on A800 (pipelines, and one stage in two row lengths), and
#: of other GPUs, where a row has hardly a fixed time.
THREE = {
    "two stages": [Replica(2, 12_416, RowTime(1.895, 125_181.0, 48_078_196))] * 3,
    "one stage": [Replica(1, 24_832, RowTime(1.895, 140_692.0, 100_806_550))] * 3,
    "short rows": [Replica(1, 5_632, RowTime(3.79, 248_743.0, 96_248_938))] * 3,
    "four stages": [Replica(4, 32_768, RowTime(2.0, 1e5, 2_000_000))] * 3,
    "unlike": [Replica(4, 32_768, RowTime(2.0 * k, 1e5 * k, 2_000_000)) for k in (1, 1.7, 3)],
}


@pytest.mark.parametrize("replicas", THREE.values(), ids=THREE)
def test_150_sequences_are_proved_without_a_model(replicas: list[Replica]) -> None:
    """The gap of log-normal lengths is below 0.1 %, whatever a row's fixed time is."""
    rng = random.Random(151)
    drawn = [16 + int(rng.lognormvariate(math.log(400), 1.4)) for _ in range(200)]
    lengths = [length for length in drawn if length <= replicas[0].longest_row][:150]
    found = dispatch(Strategy("three", tuple(replicas)), lengths, "packed", SolveOptions(gap=0.001))
    assert found.gap <= 0.001


@pytest.mark.parametrize("seed", range(20))
def test_fewest_rows_are_never_above_a_packing(seed: int) -> None:
    """Of every number of longest sequences; where all are above half a row, it is their number."""
    rng = random.Random(seed)
    lengths = np.array(sorted((rng.randint(1, 100) for _ in range(6)), reverse=True))
    fewest = fewest_rows(lengths, 100)
    for k in range(len(lengths) + 1):
        packed = [
            len(rows)
            for rows in partitions(range(k))
            if all(sum(lengths[i] for i in row) <= 100 for row in rows)
        ]
        assert fewest[k] <= min(packed)
    half = lengths[lengths > 50]
    assert fewest_rows(half, 100).tolist() == list(range(len(half) + 1))


def test_exchanges_measure_as_the_dispatch_is_measured() -> None:
    """After each exchange the slowest replica ends sooner, and when the definition says."""
    strategy, lengths = Strategy("two", tuple(THREE["two stages"][:2])), list(range(100, 5_000, 97))
    times = np.array(
        [[one.time.sequence_ns(length) for length in lengths] for one in strategy.replicas]
    )
    exchange = Exchange(strategy.replicas, lengths, times, packed=True)
    half = len(lengths) // 2
    exchange.start(
        Dispatch(
            (
                tuple((i,) for i in range(half)),
                (tuple(range(half, half + 2)), *((i,) for i in range(half + 2, len(lengths)))),
            )
        )
    )
    before = exchange.time_ns
    assert exchange.improve()
    while True:
        assert is_dispatch(strategy, lengths, "packed", exchange.dispatch)
        assert exchange.time_ns == dispatch_ns(strategy, lengths, exchange.dispatch) < before
        before = exchange.time_ns
        if not exchange.improve():
            break


def test_a_sequence_that_fits_no_replica_is_refused() -> None:
    """The message says how long it is and what the strategy takes."""
    replica = Replica(1, 100, RowTime(0.0, 1.0, 0))
    with pytest.raises(PlannerError, match="a sequence of 101 tokens; strategy one takes 100"):
        dispatch(Strategy("one", (replica,)), [101], "packed", EXACT)
