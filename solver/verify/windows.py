"""What plans below a claim may use, by how long windows of neighbouring stages turn; even shares.

Added. Let the latency of a lane be all f_k + b_k of its stages and the transfers between them, both
ways, with what follows the last backward of stage 0. Paths that come back to stage 0 and go through
all stages after their own add to it what they do besides: so T >= latency + A, A the most that any
of these paths adds. A class has the plans with A from `low` to `high`: their latency is at most the
claim less `low`, and nothing that they use adds more than `high`. Classes cover all plans; one that
is not empty is halved.

Windows. With q_i = p - i, N = m - 1 - q_i >= 0, for stages i..j, n = j - i + 1, C all f_k + b_k of
theirs and the transfers between them, both ways, S these transfers, R all from stage i to the end,

    A >= R + (N C - S) / n.

Proof. `turning` has the graph say that stage k runs F_k(x + q_k) right after B_k(x), and B_k(x)
right after F_k(x + q_k - 1). So a path leads from B_i(x) to F_i(x + q_i), down to F_j, and, as
q_i - q_j + 1 = n, from B_j(x + n) back up to B_i(x + n): a turn, of length C for n micro-batches.
Take micro-batch 0 down to the last stage and back to B_i(0), and N = a n + r. If r = 0 then a turns
of the window follow. Else take a, and of each of the n cyclic runs of r stages of the window a turn
on the way up: one that wraps is two windows, r stages together. Over all n runs every stage is in
r, every transfer inside the window in r - 1 at least, so the longest adds (r C - S) / n or more.
From B_i(N) one turn down to the last stage ends with B_i(m - 1), the last, which goes up: R.

Labels. From the last stage on, ways to run the stages from i on are kept by R and by the u and n of
one window that begins with i, u = N' C - S for some N' <= N, so that N u / N' <= N C - S: a way is
left out if N u > n N' (high - R). Of two ways to the same node one stands for the other if its R is
no larger, and u - n N' P neither, for P at both ends of all that (high - R) / N can be on stages
before i: it is linear in P, and every further stage adds the same to both. So the one that is kept
has R and a window no longer than R and some window of the other; whatever way is possible, a label
stands for it at each stage and is never left out.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from formulations.instance.search import ScheduleName
from formulations.schedules import Kind, schedule_graph
from solver.verify.bounds import Clock
from solver.verify.families import BACK, NEVER
from solver.verify.path_lengths import Left, StageLengths
from solver.verify.stages import Stages

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Classes at first; none is made narrower than this part of the claim.
CLASSES = 8
NARROWEST = 20_000
#: Products of times and squares of micro-batches stay below.
MOST = 1 << 61


@lru_cache(maxsize=4096)
def turning(schedule: ScheduleName, p: int, m: int) -> bool:
    """Whether every arc of every turn is one of the graph; one chunk per device."""
    graph = schedule_graph(schedule, p, m)
    forward, backward = graph.index[Kind.FORWARD], graph.index[Kind.BACKWARD]
    before, data = graph.device_before, graph.data_before
    arcs = [(data[forward[1:]], forward[:-1]), (data[backward[:-1]], backward[1:])]
    for k in range(p):
        q = p - k
        arcs.append((before[forward[k, q:]], backward[k, : max(m - q, 0)]))
        arcs.append((before[backward[k, : max(m - q + 1, 0)]], forward[k, q - 1 :]))
    return all(np.array_equal(own, expected) for own, expected in arcs)


@dataclass(frozen=True)
class _Labels:
    """Ways from nodes to the end: R as `rest`, u and n of a window; see above."""

    node: Array
    rest: Array
    window: Array
    count: Array

    def take(self, rows: Array) -> "_Labels":
        return _Labels(self.node[rows], self.rest[rows], self.window[rows], self.count[rows])


def by_windows(stages: Stages, left: Left, r: int, limit: int, clock: Clock) -> Left | None:
    """What lane r with even shares may use of this within the limit; None if there is nothing."""
    space = _Lane(stages, left, r, limit)
    if limit * space.m**2 >= MOST:
        return left
    ends = np.linspace(-1, space.most, CLASSES + 1).astype(np.int64).tolist()
    open_ = [(low + 1, high) for low, high in pairwise(ends)]
    useful, halves = [np.zeros(len(own), dtype=np.bool_) for own in left], True
    while open_:
        clock.check()
        low, high = open_.pop()
        found = space.useful(low, high)
        if found is None:
            continue
        if halves and high - low >= limit // NARROWEST:
            middle = (low + high) // 2
            open_ += [(low, middle), (middle + 1, high)]
            continue
        halves = False  # no refutation: the other classes as they are
        for mask, own in zip(useful, found, strict=True):
            mask[own] = True
    kept = [own.take(mask) for own, mask in zip(left, useful, strict=True)]
    return kept if all(map(len, kept)) else None


class _Lane:
    """Latency of the choices of one lane and what they add, [M] per stage; m micro-batches."""

    def __init__(self, stages: Stages, left: Left, r: int, limit: int) -> None:
        self.limit, self.m, self.p = limit, stages.least, len(left)
        lane = stages.lane(left, r)
        self.ways, self.through = lane.ways, lane.passed(BACK)
        self.latency = lane.returned(BACK)
        self.times = [one.visited(((1, 1, 0),)) for one in lane.costs]
        self.sends = [one.visited(((0, 0, 2),)) for one in lane.costs]
        self.most = limit - int(lane.before(BACK, True)[-1].min())
        around = zip(self.latency, stages.members, strict=True)
        self.added = [
            StageLengths(lane, k, limit).added(latency, members)
            for k, (latency, members) in enumerate(around)
        ]
        turns = turning(stages.shape.schedule, self.p, self.m)
        #: [p] N, 0 without windows
        self.turns = [max(0, self.m - 1 - self.p + i) * turns for i in range(self.p)]
        self.least_turns = min((n for n in self.turns if n), default=0)

    def useful(self, low: int, high: int) -> list[Array] | None:
        """Per stage the choices of plans of a class; None if there are none."""
        latency, through = (
            [np.where(a > high, NEVER, c) for a, c in zip(self.added, own, strict=True)]
            for own in (self.latency, self.through)
        )
        before, after = self.ways.before(latency), self.ways.after(through)
        keep = [
            np.flatnonzero(before[k][source] + latency[k] + after[k][target] + low <= self.limit)
            for k, (source, target) in enumerate(self.ways.nodes)
        ]
        if not all(map(len, keep)):
            return None
        means = [self._means(k, keep[k], low, high, before, after) for k in range(self.p)]
        nodes = np.unique(self.ways.nodes[-1][1][keep[-1]])
        labels, found = _Labels(nodes, *np.zeros((3, len(nodes)), dtype=np.int64)), []
        for k in reversed(range(self.p)):
            edge, own = _pairs(self.ways.nodes[k][1], keep[k], labels.node)
            rest = labels.rest[own] + self.times[k][edge]
            start = before[k][self.ways.nodes[k][0][edge]]
            short = start + self.latency[k][edge] + labels.rest[own] + low <= self.limit
            window, count, fits = self._windows(k, edge, labels.take(own), high - rest)
            good = np.flatnonzero(short & fits)
            if not len(good):
                return None
            edge = edge[good]
            found.append(np.unique(edge))
            sends = self.sends[k][edge]
            inside = max(self.least_turns - 1, 0) * sends * (count[good] > 0)
            labels = _Labels(
                self.ways.nodes[k][0][edge],
                rest[good] + sends,
                window[good] + inside,
                count[good],
            )
            labels = self._kept(labels, [mean for mean in means[:k] if mean])
        return found[::-1]

    def _means(
        self,
        k: int,
        keep: Array,
        low: int,
        high: int,
        before: list[Array],
        after: list[Array],
    ) -> tuple[int, int] | None:
        """Least and most that (high - R) / N can be on stage k, in whole ns; None without N."""
        if not self.turns[k]:
            return None
        source, target = (own[keep] for own in self.ways.nodes[k])
        shortest = int((self.times[k][keep] + after[k][target]).min())
        longest = self.limit - low - int(before[k][source].min())
        return (high - longest) // self.turns[k], -(-(high - shortest) // self.turns[k])

    def _windows(
        self, k: int, edge: Array, onward: _Labels, room: Array
    ) -> tuple[Array, Array, Mask]:
        """The longer of the window that goes on and a new one; whether it fits in the room."""
        turns, least = self.turns[k], self.least_turns
        if not turns:
            none = np.zeros_like(edge)
            return none, none, np.ones(len(edge), dtype=np.bool_)
        own = least * self.times[k][edge]
        goes_on = onward.window * turns > onward.count * least * room
        window = np.where(goes_on, onward.window, 0) + own
        count = np.where(goes_on, onward.count, 0) + 1
        return window, count, turns * window <= count * least * room

    def _kept(self, labels: _Labels, means: list[tuple[int, int]]) -> _Labels:
        """Labels that no other of their node stands for, by (high - R) / N of stages before."""
        keys = [labels.rest]
        if means:
            least, most = min(low for low, _ in means), max(high for _, high in means)
            per = self.least_turns * labels.count
            keys += [labels.window - per * mean for mean in {least, most}]
        return labels.take(_undominated(labels.node, np.stack(keys)))


def _pairs(target: Array, keep: Array, node: Array) -> tuple[Array, Array]:
    """Each of these choices with each label of its target; nodes of labels are sorted."""
    first = np.searchsorted(node, target[keep])
    count = np.searchsorted(node, target[keep], side="right") - first
    shift = np.repeat(first - (np.cumsum(count) - count), count)
    return np.repeat(keep, count), shift + np.arange(len(shift))


def _undominated(node: Array, keys: Array) -> Array:
    """Rows, by node, than which no other of the node is as small in all keys [K, L].

    All that is left of a node is compared with its first, until nothing is left.
    """
    order = np.lexsort((*keys[::-1], node))
    node, keys = node[order], keys[:, order]
    left, found = np.arange(len(order)), list[Array]()
    while len(left):
        starts = np.flatnonzero(np.diff(node[left], prepend=-1))
        first = np.repeat(left[starts], np.diff(starts, append=len(left)))
        found.append(left[starts])
        left = left[(keys[:, first] > keys[:, left]).any(axis=0)]
    return order[np.sort(np.concatenate(found))]
