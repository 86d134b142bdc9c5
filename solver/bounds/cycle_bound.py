"""Bounds by what windows of stages add to the latency of one lane, more than their slowest stage.

A window turns like a cycle of a max-plus matrix: N turns take N times its cycle mean C / n, less
what its ends save (Baccelli, Cohen, Olsder and Quadrat 1992, chapter 3). The bound is the least
over all paths of the layered graph, by label setting with dominance (Desrochers and Soumis 1988),
see `undominated`. Path families: latency and turns; of schedules that state no turns, single stages
alone, see `latency_bottleneck`.

Window. In 1F1B let C be all f_k + b_k of the stages i..j and the transfers between them, both ways,
S these transfers, n = j - i + 1, q = p - i and N = m - 1 - q >= 0. Then

    end of the last backward of stage 0 >= latency + (C of i..p-1) + (N C - S) / n.

Proof. Stage i runs F_i(x + q) right after B_i(x), and stage j B_j(x + n) right after F_j(x + q). So
from B_i(x), as long as there is a F_i(x + q), a path leads down to stage j and back to B_i(x + n):
a turn, of length C. It begins with micro-batch 0 down to the last stage and back to B_i(0). Of the
N = a n + r micro-batches until B_i(N), a n take a turns. If r > 0, look at the n cyclic runs of r
of the stages i..j: a run that does not wrap is a window of r stages, one that does is two, r stages
together. On the first way back up to i the path takes a turn of each as it reaches its upper stage:
r micro-batches further. Of all the runs together every stage has r, every transfer inside i..j has
r - 1 or more, so the longest adds (r C - S) / n or more. After B_i(N) a last turn, down to the last
stage, ends with B_i(m - 1), which goes up.

Classes tell paths apart by M, the largest of what terms, rounds and windows add: it is at most
`high`, and more than in the class before, so the least latency plus `low` bounds a class. Labels,
from the last stage on, are what is known of ways to run the rest of the stages. Of the windows that
begin with the first of these a label keeps one: n, C, S, and q and N of its first stage. It is
refuted if N C - S > n (high - latency), as by rounds if N = 0.
One label stands for another if its latency is no larger and its window no longer, however both go
on: with P more work and transfers that is

    N C - S - n H  for H = high - latency of the stages before, linear in N and H, N work <= H:

the ends of their ranges are enough. Whatever window a label keeps, and whatever label stands for
it, a way that is possible leads from label to label; every edge of it stays useful.
"""

from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from formulations.schedules.registry import SCHEDULES
from solver.bounds.latency_bottleneck import latencies, least_terms, rounds
from solver.graph.edges import ArrayRecord, Layers, shortest_path, so_far, to_go
from solver.graph.problem import INFINITY, Array, Mask, SplitProblem, runs
from solver.interrupt import Stop

#: Classes at first, and how often the one of least bound is halved.
CLASSES = 8
HALVINGS = 24
#: Classes are not made narrower than this part of the cutoff.
RESOLUTION = 20_000
#: Labels of a stage compared with another one at most; of a node, one label stands for the rest.
MOST_COMPARED = 1 << 21


@dataclass(frozen=True)
class Labels(ArrayRecord):
    """L ways to run the stages from one on, sorted by node, ns.

    node: [L] where they start. latency: with the transfers into the first stage, and the tail of
    stage 0. embedding: all-reduce of tied embeddings, as far as the last stage decides it. length,
    sends, count: C, S and n of a window that begins with the first stage; C and S with the
    transfers into it; all 0 if there is none. edge, onward: the first edge and the label after it.
    """

    node: Array
    latency: Array
    embedding: Array
    length: Array
    sends: Array
    count: Array
    edge: Array
    onward: Array


def undominated(labels: Labels, keys: list[Array], max_compared: int) -> Labels:
    """The labels that no other of their node stands for.

    A label is compared with one of its node at a time, the first in the order of the keys. After
    `max_compared` comparisons in all, one label without a window stands for what is left of a node.
    """
    order = np.lexsort((*reversed(keys), labels.node))
    node, key, rest = labels.node[order], np.stack(keys)[:, order], np.arange(len(order))
    kept, compared = list[Array](), 0
    while len(rest) and compared <= max_compared:
        compared += len(rest)
        starts = np.flatnonzero(np.diff(node[rest], prepend=-1))
        first = np.repeat(starts, np.diff(starts, append=len(rest)))
        kept.append(rest[starts])
        undecided = np.flatnonzero((key[:, first] > key).any(axis=0))
        rest, key = rest[undecided], key[:, undecided]
    chosen = labels.take(order[np.sort(np.concatenate(kept))])
    if not len(rest):
        return chosen
    undecided_labels = labels.take(order[rest])
    starts = np.flatnonzero(np.diff(undecided_labels.node, prepend=-1))
    none = np.zeros(len(starts), dtype=np.int64)
    merged = replace(
        undecided_labels.take(starts),
        latency=np.minimum.reduceat(undecided_labels.latency, starts),
        embedding=np.minimum.reduceat(undecided_labels.embedding, starts),
        length=none,
        sends=none,
        count=none,
    )
    names = Labels.__dataclass_fields__
    both = Labels(
        *(np.concatenate([getattr(part, name) for part in (chosen, merged)]) for name in names)
    )
    return both.take(np.argsort(both.node, kind="stable"))


@dataclass(frozen=True, order=True)
class Class:
    """Paths with M from `low` to `high` take `bound_ns` or more.

    path: [p] edges of the one with that bound, None if there is none. useful: per stage [M] edges
    that paths may use.
    """

    bound_ns: int
    low: int
    high: int
    path: Array | None = field(compare=False, default=None)
    useful: list[Mask] = field(compare=False, default_factory=list)


class _Lane:
    """One lane of tightened layers. least, most: M of the paths that matter below the cutoff."""

    def __init__(self, problem: SplitProblem, layers: Layers, cutoff: int, lane: int) -> None:
        self.problem, self.layers, self.cutoff, self.lane = problem, layers, cutoff, lane
        self.costs = [costs[lane] for costs in latencies(layers)]
        self.least = int(least_terms(layers)[lane])
        self.most = max(cutoff - int(to_go(layers, self.costs)[0][0]), self.least + 1)

    def turns_left(self, stage: int) -> int:
        """N of windows that begin with a stage; below 0 there are none."""
        if not SCHEDULES[self.problem.schedule].turns:
            return -1
        return self.problem.micro_batches[self.lane] - 1 - (self.problem.num_stages - stage)

    def bounded(self, low: int, high: int) -> Class | None:
        """The class of M from `low` to `high`; None if it has no path below the cutoff."""
        one_pass = _Pass(self, low, high)
        ends = np.unique(self.layers[-1].target)
        labels = Labels(ends, *[np.zeros(len(ends), dtype=np.int64)] * 7)
        passed, useful = [], []
        for k in reversed(range(len(self.layers))):
            labels = one_pass.extended(k, labels)
            if not len(labels.node):
                return None
            mask = np.zeros(len(self.layers[k]), dtype=np.bool_)
            mask[labels.edge] = True
            useful.append(mask)
            labels = undominated(labels, one_pass.keys(k, labels), MOST_COMPARED)
            passed.append(labels)
        at = int(labels.latency.argmin())
        bound_ns, path = low + int(labels.latency[at]), []
        for labels in reversed(passed):
            path.append(labels.edge[at])
            at = int(labels.onward[at])
        return Class(bound_ns, low, high, np.array(path), useful[::-1])


class _Pass:
    """The labels of one class, from the last stage to the first."""

    def __init__(self, lane: _Lane, low: int, high: int) -> None:
        self.lane, self.low, self.high = lane, low, high
        layers, r = lane.layers, lane.lane
        pairs = zip(layers, lane.costs, strict=True)
        costs = [np.where(edges.term[r] > high, INFINITY, cost) for edges, cost in pairs]
        self.before, after = so_far(layers, costs), to_go(layers, costs)
        self.usable = list[Array]()
        for k, (edges, cost) in enumerate(zip(layers, costs, strict=True)):
            through = self.before[k][edges.source] + cost + after[k + 1][edges.target]
            self.usable.append(np.flatnonzero(through + low < lane.cutoff))
        #: Per stage the least f + b of its usable edges.
        pairs_usable = zip(layers, self.usable, strict=True)
        passes = ((edges.forward[r] + edges.backward[r])[chosen] for edges, chosen in pairs_usable)
        self.work = [int(times.min(initial=INFINITY)) for times in passes]

    def extended(self, k: int, labels: Labels) -> Labels:
        """All labels of stage k that are not refuted."""
        problem, edges, lane = self.lane.problem, self.lane.layers[k], self.lane.lane
        # Every usable edge with every label of its target.
        usable, count = self.usable[k], np.bincount(labels.node, minlength=edges.num_targets)
        target = edges.target[usable]
        pair, label = runs((np.cumsum(count) - count)[target], count[target])
        edge = usable[pair]
        times = (edges.forward[lane] + edges.backward[lane])[edge]
        sends = (edges.send[lane] + edges.send_back[lane])[edge]
        # All-reduce of tied embeddings as the last stage decides, what it adds on the first.
        embedding, extra = np.zeros_like(label), np.zeros_like(label)
        if problem.tied:
            here_ns = problem.stages[k].embedding[edges.arc[edge]]
            embedding = here_ns if k == problem.num_stages - 1 else labels.embedding[label]
            extra = np.maximum(embedding - here_ns, 0) * edges.opens[edge]
        # Empty stages have no windows: the latency after them has the tail of the first stage.
        latency = (labels.latency[label] + times) * edges.filled[edge]
        total = labels.latency[label] + self.lane.costs[k][edge] + extra
        good = self.before[k][edges.source[edge]] + total + self.low < self.lane.cutoff
        micro_batches = problem.micro_batches[lane]
        good &= rounds(problem, k, micro_batches, latency, edges.work[lane][edge]) <= self.high
        length, inside = times + labels.length[label], labels.sends[label]
        count = labels.count[label] + 1
        room, turns = self.high - latency, self.lane.turns_left(k)
        excess = turns * length - inside - count * room
        if turns >= 0:
            good &= excess <= 0
        longer = excess > turns * times - room
        return Labels(
            node=edges.source[edge],
            latency=total,
            embedding=embedding,
            length=np.where(longer, length, times) + sends,
            sends=np.where(longer, inside, 0) + sends,
            count=np.where(longer, count, 1),
            edge=edge,
            onward=label,
        ).take(np.flatnonzero(good))

    def keys(self, k: int, labels: Labels) -> list[Array]:
        """What must be no larger for a label of stage k to stand for another."""
        keys = [labels.latency, labels.embedding]
        if not k:
            return keys
        most_turns = self.lane.turns_left(k - 1)
        if most_turns < 1:
            return keys
        fewest_turns = max(1, self.lane.turns_left(0))
        work = min(self.work[:k])
        room = self.high - int(labels.latency.min())
        windows = [
            turns * labels.length - labels.count * above - labels.sends
            for turns in {most_turns, fewest_turns}
            for above in (turns * work, room)
        ]
        return [*keys, *windows]


def by_windows(
    problem: SplitProblem,
    layers: Layers,
    cutoff: int,
    stop: Stop = lambda: False,
    lane: int = 0,
    halve: bool = True,
) -> Class:
    """All paths below the cutoff of tightened layers, as far as one lane shows.

    With classes halved if asked.
    """
    search, open_ = _Lane(problem, layers, cutoff, lane), list[Class]()
    ends = np.linspace(search.least - 1, search.most, CLASSES + 1).astype(np.int64).tolist()
    for before, end in pairwise(ends):
        if stop():
            # What is known of all paths without classes.
            rest = to_go(layers, search.costs)
            path = shortest_path(layers, search.costs, rest)
            useful = [np.ones(len(edges), dtype=np.bool_) for edges in layers]
            bound_ns = int(rest[0][0]) + search.least
            return Class(bound_ns, search.least, search.most, path, useful)
        bounded = search.bounded(before + 1, end)
        open_ += [] if bounded is None else [bounded]
    heapify(open_)
    for _ in range(HALVINGS if halve else 0):
        if not open_ or stop() or open_[0].high - open_[0].low < cutoff // RESOLUTION:
            break
        widest = heappop(open_)
        middle = (widest.low + widest.high) // 2
        for low, high in ((widest.low, middle), (middle + 1, widest.high)):
            half = search.bounded(low, high)
            if half is not None:
                heappush(open_, replace(half, bound_ns=max(half.bound_ns, widest.bound_ns)))
    if not open_:
        useful = [np.zeros(len(edges), dtype=np.bool_) for edges in layers]
        return Class(cutoff, search.least, search.most, None, useful)
    by_stage = zip(*(path_class.useful for path_class in open_), strict=True)
    useful = [np.any(masks, axis=0) for masks in by_stage]
    return replace(open_[0], useful=useful)
