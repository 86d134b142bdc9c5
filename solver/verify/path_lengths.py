"""Path families of a schedule, and how long they are along the choices of devices.

A family is what a device has to do on paths that are the same on all others. Each is a path of the
operation graph of (schedule, p, m, v), so no split has a shorter step than what it visits: on
device k any number of passes of each of its chunks of layers, on each device before it the same,
and on each device after it. Then comes the tail of device 0, or of device k where it does not come
back. For a stage s of device k:

returned  micro-batch 0 down and back to stage s, what is left on the device, up
downward  all of the device up to F(s, m - 1), then micro-batch m - 1 down and back up
flush     all forwards of stage k, F(m - 1) down, what the last stage then does up to B(0), that
          up to stage k, all its backwards, up; where B(0) follows F(m - 1) on the last stage
turns     micro-batch 0 down and back to stage k; pairs F, B of stage k for all but a turns; a
          times F down and back to B; up. With a = 1 and with as many as there are
device    down to the first operation of device k and all that it does: its own tail follows
above     the same up to its last backward, then up

With one chunk per device these are the formulas of `members_of`, which tests compare with simulated
steps. With several, `families` builds the others operation by operation and has `path_counts` test
every arc; what is not a path of this graph, or is not of this form, is left out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from formulations.costs.intervals import Array, Mask
from formulations.instance.search import ScheduleName
from formulations.schedules.graph import ScheduleGraph, schedule_graph
from formulations.schedules.paths import device_path, last_down, path_counts, returned
from formulations.schedules.registry import SCHEDULES
from solver.verify.orders import Step

Count = int | Array
Visits = tuple[tuple[int, int, int], ...]  #: per chunk forwards, backwards, messages from before

THERE: Visits = ((1, 0, 1),)
BACK: Visits = ((1, 1, 2),)

#: More than any time in ns or number of micro-batches; sums of a few stay within 64 bits.
NEVER = 1 << 59


@dataclass(frozen=True)
class Member:
    """A path for device k, by what it visits.

    times: how often each of `Costs.times` of device k. before: on each device before. after: on
    each device after, `beyond` times. back: whether it comes back to the first device. Counts are
    numbers, or one per choice of m.
    """

    times: tuple[Count, ...]
    before: Visits
    after: Visits
    back: bool
    beyond: Count

    def covers(self, member: "Member") -> bool:
        """Whether it is at least as long as another whatever the times."""
        counts, others = (
            (*path.times[: len(path.times) // 2], path.beyond) for path in (self, member)
        )
        alike = (self.before, self.after, self.back) == (member.before, member.after, member.back)
        return alike and all(a >= b for a, b in zip(counts, others, strict=True))


def of_one_chunk(times: tuple[Count, Count, Count], back: bool, beyond: Count) -> Member:
    """With so many forwards, backwards and weight gradients on stage k."""
    sends = (1 + back + 0 * times[0], times[0] - beyond, times[1] - back)
    return Member((*times, *sends), BACK if back else THERE, BACK, back, beyond)


@lru_cache(maxsize=4096)
def families(
    schedule: ScheduleName, p: int, m: int, chunks: int, group: int | None = None
) -> tuple[tuple[Member, ...], ...]:
    """Per device all members for replicas of m micro-batches, none covered by another."""
    graph, by_device = schedule_graph(schedule, p, m, chunks, group), list[tuple[Member, ...]]()
    for k in range(p):
        longest = list[Member]()
        for path in _paths(graph, k):
            member = _member(graph, k, path)
            if member and not any(longer.covers(member) for longer in longest):
                kept = (shorter for shorter in longest if not member.covers(shorter))
                longest = [*kept, member]
        by_device.append(tuple(longest))
    return tuple(by_device)


def members_of(schedule: ScheduleName, p: int, k: int, m: Array) -> list[Member]:
    """The same for stage k and many m at once; one chunk per device.

    With a larger m the longest path is no shorter: with as many turns all grow.
    """
    rules, members = SCHEDULES[schedule], [of_one_chunk((m, m, m), False, 0)]
    stage, beyond = np.full_like(m, k), int(k < p - 1)
    missed = rules.missed(np.full_like(m, p), stage, m, np.ones_like(m))
    done = m - 1 if k else m + missed[0].weight  # on stage 0, all that it puts off comes after
    members += [of_one_chunk((m - f, m - b, done - w), True, beyond) for f, b, w in missed]
    members.append(of_one_chunk((m, m, done - missed[0].weight), True, 0))
    if rules.turns and beyond:
        most_turns = (m - 1) // (p - k)
        for turns in (np.minimum(most_turns, 1), most_turns):
            pairs = np.where(turns > 0, m - turns * (p - k - 1), 0)
            members.append(of_one_chunk((pairs, pairs, 0 * pairs), True, 1 + turns))
    return members


def _paths(graph: ScheduleGraph, k: int) -> Iterator[Array]:
    """Candidates for device k, whether or not they are paths of this graph."""
    for stage in range(k, graph.num_stages, graph.num_devices):
        yield returned(graph, stage)
        yield last_down(graph, stage)
    yield device_path(graph, k, ends_at=k)
    yield device_path(graph, k)


def _member(graph: ScheduleGraph, k: int, path: Array) -> Member | None:
    """What a path visits; None if it is none, or not the same on all devices before or after."""
    try:
        counts = path_counts(graph, path)
    except ValueError:
        return None
    p, stages = graph.num_devices, graph.num_stages
    kinds, moves = np.zeros((2, 3, stages), dtype=np.int64)
    kinds[: len(graph.index)] = counts.weights.reshape(-1, stages)
    moves[:2, :-1] = counts.transfers[:-1].reshape(2, stages - 1)
    sends = np.roll(moves.sum(axis=0), 1)
    sends[0] = kinds[:2, 0].sum()  # it takes no time
    onward, behind = kinds[0] - moves[0], kinds[1] - np.roll(moves[1], 1)
    visits = np.stack([*kinds, sends, onward, behind]).reshape(6, -1, p)
    last = int(path[-1]) // (graph.num_operations // p)  # the device on which it ends
    outside = visits[:4, :, :k], visits[:4, :, k + 1 :]
    alike = all((part == part[..., :1]).all() for part in outside)
    puts_off = visits[2].sum() > visits[2, :, k].sum()  # weight gradients elsewhere
    if not alike or puts_off or last not in (0, k):
        return None
    beyond = int(np.gcd.reduce(visits[[0, 1, 3], :, k + 1 :].ravel()))
    before, after = (
        tuple((f, b, sends) for f, b, _, sends, _, _ in device.T.tolist())
        for device in (visits[..., 0], visits[..., -1] // max(beyond, 1))
    )
    through = BACK * visits.shape[1]
    return Member(
        times=tuple(visits[:, :, k].ravel().tolist()),
        before=before if k else through,
        after=after if beyond else through,
        back=last == 0,
        beyond=beyond,
    )


@dataclass(frozen=True)
class Choices:
    """M ways to run one device: by a step of the graph [M], layers [first, last) [M].

    row: [M] what of the device's layers is in which chunk, as a row of `Stages.sizes`. With several
    chunks `first` counts the layers of all chunks of the devices before.
    """

    step: Array
    first: Array
    last: Array
    row: Array

    def __len__(self) -> int:
        return len(self.step)

    def take(self, keep: Mask) -> "Choices":
        """Some of them."""
        return Choices(self.step[keep], self.first[keep], self.last[keep], self.row[keep])

    @staticmethod
    def joined(cases: Sequence["Choices"]) -> "Choices":
        """Those of any of these, once each."""
        rows = [np.stack([case.step, case.first, case.last, case.row]) for case in cases]
        return Choices(*np.unique(np.concatenate(rows, axis=1), axis=1))


Remaining = list[Choices]  #: by device


@dataclass(frozen=True)
class Costs:
    """The choices of one device for one lane, ns [M].

    times: [K, M] forward of every chunk, then backward, weight gradients, message from or to the
    stage before; if sends are blocking the least that lengthen forwards, and backwards. tail: [M]
    what follows the last backward.
    """

    times: Array
    tail: Array

    def visited(self, visits: Visits) -> Array:
        """[M] ns of these visits."""
        forward, backward, sends = zip(*visits, strict=True)
        pairs = zip((*forward, *backward, *[0] * len(visits), *sends), self.times, strict=False)
        return sum((n * ns if n > 1 else ns for n, ns in pairs if n), 0 * self.tail)


def _ways(reached: Array, arcs: Iterable[tuple[tuple[Array, Array], Array, int]]) -> list[Array]:
    """[M] of every device the shortest way up to each choice, from nodes with these ways.

    arcs: per device from where to where choices lead, what they take, and the number of nodes.
    """
    ways = list[Array]()
    for (source, target), cost, num_nodes in arcs:
        ways.append(reached[source])
        reached = np.full(num_nodes, NEVER)
        np.minimum.at(reached, target, ways[-1] + cost)
    return ways


class LaneWays:
    """Shortest ways of one lane through the choices that remain, [M] of every device.

    nodes: per device those before and after every choice, a state and a layer as one number; size:
    layers of a state. once: [M] ns of the first device, what follows all that comes back there.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        remaining: Remaining,
        costs: list[Costs],
        once: Array,
        size: int,
    ) -> None:
        self.costs, self.once, self.size = costs, once, size
        self.nodes = [
            (step.source[c.step] * size + c.first, step.target[c.step] * size + c.last)
            for step, c in zip(steps, remaining, strict=True)
        ]
        self._num_nodes = [size, *(step.num_targets * size for step in steps)]
        self.passed = lru_cache(maxsize=None)(self._passed)
        # shortest ways from the start to every choice, and from every choice to the end, without it
        self.before = lru_cache(maxsize=None)(
            lambda visits, back: self.ways_before(self.passed(visits, back))
        )
        self.after = lru_cache(maxsize=None)(
            lambda visits: self.ways_after(self.passed(visits, False))
        )

    def _passed(self, visits: Visits, back: bool) -> list[Array]:
        """What every choice adds to ways with these visits; back: that return to the first."""
        first, *others = (device.visited(visits) for device in self.costs)
        return [first + self.once if back else first, *others]

    def ways_before(self, passed: list[Array]) -> list[Array]:
        """From the start, where the choices take so long."""
        start = np.full(self.size, NEVER)
        start[0] = 0
        return _ways(start, zip(self.nodes, passed, self._num_nodes[1:], strict=True))

    def ways_after(self, passed: list[Array]) -> list[Array]:
        """To the end, where the choices take so long."""
        back = [(target, source) for source, target in self.nodes]
        arcs = list(zip(back, passed, self._num_nodes[:-1], strict=True))[::-1]
        return _ways(np.zeros(self._num_nodes[-1], dtype=np.int64), arcs)[::-1]

    def busiest(self, k: int, limit: int) -> Array:
        """[M] micro-batches for which device k is busy within the limit; 0 if for none."""
        forward, backward, weight, *_ = self.costs[k].times
        work = forward + backward + weight
        return np.asarray(np.maximum(limit // np.maximum(work, 1), 0))

    def within(self, k: int, members: Sequence[Member], limit: int) -> Mask:
        """[M] whether no member of device k is longer than the limit, with its surroundings.

        See the head of `refutation`.
        """
        return np.asarray(np.all(self.lengths(k, members) <= limit, axis=0))

    def added(self, k: int, members: Sequence[Member]) -> Array:
        """[M] what paths that come back from all devices after k add to the latency, at least."""
        is_last = k + 1 == len(self.costs)
        through = [member for member in members if member.back and (member.beyond or is_last)]
        alone = self.before(BACK, True)[k] + self.passed(BACK, True)[k] + self.after(BACK)[k]
        longest = [alone, *self.lengths(k, through)] if through else [alone]
        return np.asarray(np.max(longest, axis=0) - alone)

    def lengths(self, k: int, members: Sequence[Member]) -> Array:
        """[C, M] ns of members of device k, with its surroundings."""
        device = self.costs[k]
        counts = np.array([member.times for member in members])[:, : len(device.times)]
        lengths = np.asarray(np.einsum("ck...,k...->c...", counts, device.times))
        for length, member in zip(lengths, members, strict=True):
            after = self.after(member.after)[k]
            length += self.before(member.before, member.back)[k]
            length += np.where(after < NEVER, member.beyond * after, NEVER)
            if not (member.back and k):
                length += device.tail
        return lengths
