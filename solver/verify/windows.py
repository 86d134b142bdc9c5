"""What plans below a claim may use, by how long windows of neighbouring stages turn; even shares.

Let the latency of a lane be all f_k + b_k of its stages and the transfers between them, both ways,
with what follows the last backward of stage 0. Paths that come back to stage 0 add something to it:
T >= latency + A, A the most that any of these paths adds. So A is at most the claim less the least
latency of all ways that are left. A class has the plans with A from `low` to `high`, the room:
their latency is at most the claim less `low`, and nothing that they use adds more than `high`.
Classes cover all plans; one that is not empty is halved.

With q_i = p - i, N = m - 1 - q_i >= 0, for stages i..j, n = j - i + 1, C all f_k + b_k of theirs
and the transfers between them, both ways, S these transfers, R all from stage i to the end,

    A >= R + (N C - S) / n.                                                                  (1)

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
left out if

    N u > n N' (room - R).                                                                   (2)

Of two ways to the same node one stands for the other if neither its R nor its u is larger and its n
is no smaller. For then

    u - n N' P                                                                               (3)

is no larger either, whichever P >= 0 the (room - R) / N of a stage before is, and every further
stage adds the same to both. So the one that is kept has R and a window no longer than R and some
window of the other; whatever way is possible, a label stands for it at each stage and is never left
out.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from formulations.costs.intervals import Array, Mask
from formulations.instance.search import ScheduleName
from formulations.schedules.graph import schedule_graph
from formulations.schedules.registry import Kind
from solver.verify.path_lengths import BACK, NEVER, Remaining
from solver.verify.stages import Stages

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
    return all(np.array_equal(sources, expected) for sources, expected in arcs)


@dataclass(frozen=True)
class Labels:
    """Ways from nodes to the end: R as `rest`, u and n of a window; see above."""

    node: Array
    rest: Array
    window: Array
    count: Array

    def take(self, rows: Array) -> "Labels":
        """Some of them."""
        return Labels(self.node[rows], self.rest[rows], self.window[rows], self.count[rows])


def by_windows(stages: Stages, remaining: Remaining, r: int, limit: int) -> Remaining | None:
    """What lane r with even shares may use of this within the limit; None if there is nothing."""
    p, m = len(remaining), stages.least
    num_turns = [max(0, m - 1 - p + i) for i in range(p)]  # N of every stage; 0: no windows
    if limit * m**2 >= MOST or not any(num_turns) or not turning(stages.config.schedule, p, m):
        return remaining
    lane = _Lane(stages, remaining, r, limit, num_turns)
    ends = np.linspace(-1, lane.room, CLASSES + 1).astype(np.int64).tolist()
    open_classes = [(low + 1, high) for low, high in pairwise(ends)]
    useful, halves = [np.zeros(len(choices), dtype=np.bool_) for choices in remaining], True
    while open_classes:
        low, high = open_classes.pop()
        masks = lane.useful(low, high)
        if masks is None:
            continue
        if halves and high - low >= limit // NARROWEST:
            middle = (low + high) // 2
            open_classes += [(low, middle), (middle + 1, high)]
            continue
        halves = False  # no refutation: the other classes as they are
        useful = [mask | more for mask, more in zip(useful, masks, strict=True)]
    kept = [choices.take(mask) for choices, mask in zip(remaining, useful, strict=True)]
    return kept if all(map(len, kept)) else None


class _Lane:
    """What the choices of one lane take and add, [M] per stage."""

    def __init__(
        self, stages: Stages, remaining: Remaining, r: int, limit: int, num_turns: list[int]
    ) -> None:
        self.limit, self.num_turns = limit, num_turns
        self.fewest = min(n for n in num_turns if n)  # N'
        lane = stages.lane(remaining, r)
        self.lane, self.nodes = lane, lane.nodes
        self.room = limit - int((lane.before(BACK, True)[-1] + lane.passed(BACK, True)[-1]).min())
        self.added = [lane.added(k, stages.members(k)) for k in range(len(remaining))]
        # of every device what a micro-batch takes there and back, and its messages both ways
        self.times = [device.visited(((1, 1, 0),)) for device in lane.costs]
        self.sends = [device.visited(((0, 0, 2),)) for device in lane.costs]

    def useful(self, low: int, high: int) -> list[Mask] | None:
        """Per stage the choices of plans with A from low to high; None if there are none."""
        p, limit, fewest, times = len(self.nodes), self.limit - low, self.fewest, self.times
        # choices that add more than the class has are none of its
        latency, through = (
            [np.where(a > high, NEVER, c) for a, c in zip(self.added, passed, strict=True)]
            for passed in (self.lane.passed(BACK, True), self.lane.passed(BACK, False))
        )
        before, after = self.lane.ways_before(latency), self.lane.ways_after(through)
        keep = [b + c + a <= limit for b, c, a in zip(before, latency, after, strict=True)]
        if not all(mask.any() for mask in keep):
            return None
        useful = list[Mask]()
        nodes = np.unique(self.nodes[-1][1])
        labels = Labels(nodes, *np.zeros((3, len(nodes)), dtype=np.int64))
        for k in reversed(range(p)):
            source, target = self.nodes[k]
            edge, row = _pairs(target, labels.node)
            onward = labels.take(row)
            rest = onward.rest + times[k][edge]
            fits = before[k][edge] + latency[k][edge] + onward.rest <= limit
            fits &= keep[k][edge]
            window, count = np.zeros_like(edge), np.zeros_like(edge)
            if n := self.num_turns[k]:
                # (2) the longer of the window that goes on and a new one
                goes_on = onward.window * n > onward.count * fewest * (high - rest)
                window = np.where(goes_on, onward.window, 0) + fewest * times[k][edge]
                count = np.where(goes_on, onward.count, 0) + 1
                fits &= n * window <= count * fewest * (high - rest)
            edge, rest, window, count = edge[fits], rest[fits], window[fits], count[fits]
            if not len(edge):
                return None
            useful.append(np.isin(np.arange(len(source)), edge))
            inside = (fewest - 1) * self.sends[k][edge] * (count > 0)
            labels = Labels(source[edge], rest + self.sends[k][edge], window + inside, count)
            keys = np.stack([labels.rest, labels.window, -labels.count])  # (3)
            labels = labels.take(_undominated(labels.node, keys))
        return useful[::-1]


def _pairs(target: Array, node: Array) -> tuple[Array, Array]:
    """Each choice, by its target, with each label of that; nodes of labels are sorted."""
    first = np.searchsorted(node, target)
    count = np.searchsorted(node, target, side="right") - first
    shift = np.repeat(first - (np.cumsum(count) - count), count)
    return np.repeat(np.arange(len(target)), count), shift + np.arange(len(shift))


def _undominated(node: Array, keys: Array) -> Array:
    """Rows, by node, than which no other of the node is as small in all keys [K, L].

    All that remain of a node are compared with its first, until none remain.
    """
    order = np.lexsort((*keys[::-1], node))
    node, keys = node[order], keys[:, order]
    rows, kept = np.arange(len(order)), list[Array]()
    while len(rows):
        starts = np.flatnonzero(np.diff(node[rows], prepend=-1))
        first = np.repeat(rows[starts], np.diff(starts, append=len(rows)))
        kept.append(rows[starts])
        rows = rows[(keys[:, first] > keys[:, rows]).any(axis=0)]
    return order[np.sort(np.concatenate(kept))]
