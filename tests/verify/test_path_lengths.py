"""Shortest ways through the choices of devices, against all ways."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from formulations.instance.search import ScheduleName
from formulations.schedules.graph import schedule_graph
from formulations.schedules.registry import SCHEDULES
from solver.simulate import Times, simulate
from solver.verify.orders import Step
from solver.verify.path_lengths import (
    Choices,
    Costs,
    LaneWays,
    Member,
    Remaining,
    Visits,
    families,
    members_of,
    of_one_chunk,
)
from tests.recorded import Cases, digest, recorded, summary

Array = NDArray[np.int64]


class Lane:
    """A lane of random choices, six for each of up to five stages, with all ways to combine them.

    All meet at one or two nodes between stages, where several labels stay: quick later stages
    against quick windows. Takes the place of `Stages` for `by_windows`.
    """

    even, config = True, SimpleNamespace(schedule="1f1b")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = np.random.default_rng(seed)
        p, size, num_nodes = int(rng.integers(2, 6)), 6, int(rng.integers(1, 3))
        self.least = int(rng.integers(p + 1, 4 * p))
        rows, self.steps, self.costs = np.arange(size), list[Step](), list[Costs]()
        for k in range(p):
            source, target = rng.integers(num_nodes, size=(2, size))
            none = np.zeros((size, 1, 1), dtype=np.int64)
            at = source * bool(k)
            self.steps.append(Step(at, target, none, none, none, rows, ((),) * size, num_nodes))
            forward, backward = rng.integers(1, 30, size=(2, size)) * 10**6
            send = rng.integers(0, 12, size=size) * 10**6 * bool(k)
            times = np.stack([forward, backward, 0 * forward, send])
            self.costs.append(Costs(times, rng.integers(0, 5, size=size) * 10**6))
        self.choices = [Choices(rows, 0 * rows, 0 * rows, rows) for _ in range(p)]
        every = np.indices((size,) * p).reshape(p, -1)
        pairs = pairwise(zip(self.steps, every, strict=True))
        meets = [a.target[i] == b.source[j] for (a, i), (b, j) in pairs]
        self.ways = every[:, np.all(meets, axis=0)]

    def members(self, k: int) -> list[Member]:
        return members_of("1f1b", len(self.steps), k, np.array(self.least))

    def lane(self, remaining: Remaining, _: int) -> LaneWays:
        pairs = zip(self.costs, remaining, strict=True)
        costs = [Costs(stage.times[:, c.row], stage.tail[c.row]) for stage, c in pairs]
        return LaneWays(self.steps, remaining, costs, costs[0].tail, 1)

    def step_ns(self) -> Array:
        graph = schedule_graph("1f1b", len(self.steps), self.least)
        pairs = list(zip(self.costs, self.ways, strict=True))
        forward, backward, _, send = np.stack([c.times[:, w] for c, w in pairs], axis=1)
        ready = simulate(graph, Times(forward, backward, send[1:]))[graph.last]
        return np.asarray((ready + np.stack([c.tail[w] for c, w in pairs])).max(axis=0))


@recorded("verify_path_lengths")
def test_lengths_are_as_recorded() -> Cases:
    """Of members, what they add to the latency, and how often a device is busy in a time."""
    for lane in map(Lane, range(12)):
        shortest, parts = lane.lane(lane.choices, 0), list[object]()
        for k in range(len(lane.steps)):
            members = lane.members(k)
            lengths = shortest.lengths(k, members)
            parts += [lengths, shortest.added(k, members), shortest.busiest(k, 10**9)]
            parts += [shortest.within(k, members, int(np.median(lengths)))]
        yield f"lane {lane.seed}", digest(summary(parts))


SIZES = [(1, 2), (2, 1), (2, 7), (3, 4), (3, 12), (5, 2), (5, 7), (5, 12)]


def length(member: Member, k: int, times: Array) -> int:
    """Of a member for device k; times: [6, v, p] of `Costs` of every virtual stage."""

    def visited(visits: Visits) -> Array:
        return np.asarray(np.einsum("cx,xcp->p", np.array(visits), times[[0, 1, 3]]))

    device = (np.array(member.times).reshape(6, -1) * times[:, :, k]).sum()
    before, after = visited(member.before)[:k].sum(), visited(member.after)[k + 1 :].sum()
    return int(device + before + member.beyond * after)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "interleaved"])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_no_member_is_longer_than_the_simulated_step(
    schedule: ScheduleName, p: int, m: int, blocking: bool
) -> None:
    """Random stages with transfers: the last operation of the first or the own device is later.

    What comes back to the first device has a weight gradient behind it, if these are put off.
    """
    rng, rules = np.random.default_rng(p * 100 + m), SCHEDULES[schedule]
    v, m = (2 + m % 2, p * m) if rules.interleaves else (1, m)
    forward, backward, weight = rng.integers(1, 50, (3, p * v, 1))
    send = rng.integers(0, 30, (p * v - 1, 1))
    graph, weight = schedule_graph(schedule, p, m, v), weight * rules.splits_backward
    late = weight if rules.splits_backward else None
    end = simulate(graph, Times(forward, backward, send, weight=late, blocking=blocking))
    last = end[graph.last, 0]
    into, onward = np.concatenate([[[0]], send]), np.concatenate([send, [[0]]])
    timed = [forward, backward, weight, into, onward * blocking, into * blocking]
    times = np.array(timed).reshape(6, v, p)
    for k in range(p):
        numbers = np.array(m)
        members = families(schedule, p, m, v)[k] if v > 1 else members_of(schedule, p, k, numbers)
        assert members
        for member in members:
            rest = int(times[2, 0, 0]) * (member.back and k > 0)
            assert length(member, k, times) + rest <= last[0 if member.back else k]


def test_equal_stages_of_1f1b_by_hand() -> None:
    """Stage 1 of 4, m 8: 6 forwards, 8 backwards, one way beyond; 2 turns leave 4 pairs."""
    members = members_of("1f1b", 4, 1, np.array(8))
    assert of_one_chunk((6, 8, 7), back=True, beyond=1) in members
    assert of_one_chunk((4, 4, 0), back=True, beyond=3) in members
    assert of_one_chunk((8, 8, 8), back=False, beyond=0) in members
    longer = of_one_chunk((4, 4, 0), True, 1)  # by every count, on the same ways
    assert longer.covers(of_one_chunk((3, 4, 0), True, 1))
    assert not longer.covers(of_one_chunk((3, 4, 0), True, 2))
    assert not longer.covers(of_one_chunk((4, 4, 0), False, 1))


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1"])
@pytest.mark.parametrize("p", [1, 2, 4, 7])
def test_members_grow_with_the_number_of_micro_batches(schedule: ScheduleName, p: int) -> None:
    """No member is shorter for a larger m, so that a largest m can be found by halving."""
    for k in range(p):
        for member in members_of(schedule, p, k, np.arange(1, 16)):
            assert all((np.diff(np.asarray(count)) >= 0).all() for count in member.times[:3])
