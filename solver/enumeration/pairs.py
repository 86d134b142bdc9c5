"""Two replicas on one split: a bound where one light replica of three kinds is not enough.

The light replica of `relaxation` may be lighter than the mean because others are heavier; but these
run the same layers on every stage. Kinds are ranked by speed; a replica has a stages on the first
kind, b on the second. Of all replicas of a plan the first is one that weighs least, w = c a + b,
with the weights of the light replica, so w is no more than the mean. For every other weight v a
second one has v a + b no more than the mean of that, and its w is no less than that of the first.
If the first has as many stages of the fastest kind as the mean, rounded down, and more of the
second, then v is chosen as large as leaves such replicas heavier than the mean: the second is of
another sort, with a stage more of the fastest kind that it pays with slower ones.

Pairs of ways through the layered graphs of the two, with the same layers on every stage, are a
split problem with two lanes. Both lanes have to be below the cutoff: the classes of M of one lane,
see `windows`, leave out edges, of which those of the other lane leave out more, and so on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from solver.bounds.completion import path_of, tighten
from solver.bounds.light_replica import LightReplica, Thinned
from solver.bounds.relaxation import MOST_OF_ALL, shared
from solver.bounds.tallies import Counted
from solver.bounds.windows import Class, classes_by_windows
from solver.layered.cuts import evaluate
from solver.layered.graph import Edges, Layers, edges_of, taken
from solver.layered.problem import Arcs, Array, Mask, SplitProblem, runs

#: Pairs of edges that are looked at; beyond that only what the replicas show alone.
MOST_PAIRS = 500_000
#: How many of them are worth asking whether to stop.
EDGES_PER_STOP = 10_000
#: Classes that those of a lane are split to, how often that is done, and labels of all edges.
CLASSES = 4
DEPTH = 40
LABELS = 3_000_000
#: Classes of less than this part of the cutoff are not split.
NARROW = 1000
#: Larger than any number of nodes of a graph.
MANY = 1 << 31

Stop = Callable[[], bool]


def _joined(one: Array, two: Array) -> Array:
    """One number for two."""
    joined: Array = one * MANY + two
    return joined


def _same_layers(one: Edges, two: Edges, size: int) -> tuple[Array, Array]:
    """All pairs of edges of two graphs with the same layers."""
    keys, others = (edges.start * size + edges.end for edges in (one, two))
    order = np.argsort(others, kind="stable")
    first, last = (np.searchsorted(others[order], keys, side) for side in ("left", "right"))
    own, other = runs(first, last - first)
    return own, order[other]


def _paired_edges(one: Layers, two: Layers, size: int) -> list[tuple[Array, Array]]:
    """Per stage the pairs of edges on paths of pairs from the start to the end."""
    nodes, stages = np.zeros(1, dtype=np.int64), []
    for left, right in zip(one, two, strict=True):
        i, j = _same_layers(left, right, size)
        reached = np.isin(_joined(left.source[i], right.source[j]), nodes)
        i, j = i[reached], j[reached]
        nodes = np.unique(_joined(left.target[i], right.target[j]))
        stages.append((i, j))
    for k, left, right in reversed(list(zip(range(len(one)), one, two, strict=True))):
        i, j = stages[k]
        useful = np.isin(_joined(left.target[i], right.target[j]), nodes)
        i, j = stages[k] = i[useful], j[useful]
        nodes = np.unique(_joined(left.source[i], right.source[j]))
    return stages


def _paired_arcs(one: Arcs, two: Arcs, before: Array, kinds: int) -> tuple[Arcs, Array]:
    """Pairs of arcs [A] each, and the numbers of the states after them, from those before."""
    target = _joined(one.target, two.target)
    after = np.unique(target)
    send = np.column_stack([one.send, two.send])
    arcs = Arcs(
        source=np.searchsorted(before, _joined(one.source, two.source)),
        target=np.searchsorted(after, target),
        column=np.column_stack([one.column, two.column]),
        send=send,
        send_back=send,
        tail=one.tail * kinds + two.tail,
        embedding=np.maximum(one.embedding, two.embedding),
        allowed=(),
        begins=(),
    )
    return arcs, after


def paired(one: Thinned, two: Thinned) -> tuple[SplitProblem, Layers] | None:
    """The pairs of ways with one split, as a problem with two lanes; None if there is none.

    Its tails are at least those of both. Its arcs have no layers of their own: those of the graph.
    """
    left, right = one.problem, two.problem
    pairs = _paired_edges(one.layers, two.layers, left.num_layers + 1)
    if not len(pairs[0][0]):
        return None
    states, stages, ways = np.zeros(1, dtype=np.int64), [], []
    for k, (i, j) in enumerate(pairs):
        own, other = one.layers[k], two.layers[k]
        both, arc = np.unique(_joined(own.arc[i], other.arc[j]), return_inverse=True)
        first, second = np.divmod(both, MANY)
        arcs, states = _paired_arcs(
            left.stages[k].take(first), right.stages[k].take(second), states, len(left.sync)
        )
        order = np.lexsort((own.end[i], own.start[i], arcs.source[arc]))
        stages.append(arcs)
        ways.append((arc[order], own.start[i][order], own.end[i][order]))
    problem = replace(
        left,
        stages=tuple(stages),
        micro_batches=left.micro_batches + right.micro_batches,
        sync=_larger(left.sync, right.sync),
        finish=_larger(left.finish, right.finish),
    )
    return problem, [edges_of(problem, k, *way) for k, way in enumerate(ways)]


def _larger(one: Array, two: Array) -> Array:
    """[I * J, n, n] the larger of every two of [I, n, n] and [J, n, n]."""
    larger: Array = np.maximum(one[:, None], two[None]).reshape(-1, *one.shape[1:])
    return larger


@dataclass(frozen=True)
class Pair:
    """Two replicas below a cutoff. kinds: [2, p], first those of the first. split: [p + 1]."""

    kinds: Array
    split: Array


@dataclass(frozen=True)
class _Part:
    """Pairs whose lanes are in these classes, in all if None; layers, useful: their edges."""

    bound_ns: int
    depth: int
    classes: tuple[Class | None, ...]
    layers: Layers
    useful: list[Mask]

    @property
    def left(self) -> Layers:
        """Edges of these pairs."""
        return taken(self.layers, self.useful)

    def within(self, layers: Layers, lane: int, one: Class) -> "_Part":
        """Those with one lane in this class; layers: the edges of all of them."""
        classes = (*self.classes[:lane], one, *self.classes[lane + 1 :])
        bound = max(self.bound_ns, one.bound_ns)
        return _Part(bound, self.depth + 1, classes, layers, one.useful)


class _Descent:
    """Whether both lanes of a pair can be below the cutoff: classes of one within the other's."""

    def __init__(self, problem: SplitProblem, cutoff: int, stop: Stop) -> None:
        self.problem, self.cutoff, self.stop = problem, cutoff, stop
        self.found: Pair | None = None

    def bound_ns(self, layers: Layers) -> int:
        """No pair is faster; at least the cutoff if none is below it.

        A pair has an M of each lane, whichever edges are left, and one split: it is in one class of
        every lane, and on one side of every boundary. Ends at the first pair below the cutoff, or
        that so many classes do not refute.
        """
        everything = [np.ones(len(edges), dtype=np.bool_) for edges in layers]
        stack = [_Part(0, 0, (None, None), layers, everything)]
        while stack:
            part = stack.pop()
            tight = tighten(self.problem, part.left, self.cutoff)
            if tight is None:
                continue
            ended = part.depth == DEPTH or self._stopped(tight)
            parts = None if ended else self._parts(part, tight)
            if parts is None:
                return min(part.bound_ns, *(one.bound_ns for one in stack), self.cutoff)
            stack += sorted(parts, key=lambda one: -one.bound_ns)
        return self.cutoff

    def _stopped(self, layers: Layers) -> bool:
        """Asked as often as it takes long to look at these."""
        return any(self.stop() for _ in range(1 + sum(map(len, layers)) // EDGES_PER_STOP))

    def _parts(self, part: _Part, layers: Layers) -> list[_Part] | None:
        """By classes of the lane that leaves fewer edges; None if some pair is below the cutoff.

        If both are in narrow classes, by where a stage ends.
        """
        found = []
        for lane, within in enumerate(part.classes):
            if within is None or within.high - within.low > self.cutoff // NARROW:
                classes = self._classes(part, layers, lane, CLASSES)
                if classes is None:
                    return None
                found.append([part.within(layers, lane, one) for one in classes])
        if not found:
            return self._halves(part, layers)
        return min(found, key=lambda parts: sum(int(m.sum()) for one in parts for m in one.useful))

    def _classes(self, part: _Part, layers: Layers, lane: int, number: int) -> list[Class] | None:
        """So many classes in that of a lane; None if the best path of one is below the cutoff."""
        within = part.classes[lane]
        classes = classes_by_windows(
            self.problem, layers, self.cutoff, lane, within, number, LABELS
        )
        return None if any(self._below(layers, one) for one in classes) else classes

    def _halves(self, part: _Part, layers: Layers) -> list[_Part] | None:
        """The pairs whose split has one boundary further to the left, and to the right."""
        for lane in range(len(part.classes)):
            classes = self._classes(part, layers, lane, 1)
            if classes is None:
                return None
            if not classes:
                return []
            part = replace(part, bound_ns=max(part.bound_ns, classes[0].bound_ns))
            layers = taken(layers, classes[0].useful)
        stage = max(range(len(layers) - 1), key=lambda k: len(np.unique(layers[k].end)))
        ends = np.unique(layers[stage].end)
        parts = []
        for chosen in np.array_split(ends, 2):
            useful = [np.ones(len(edges), dtype=np.bool_) for edges in layers]
            useful[stage] = np.isin(layers[stage].end, chosen)
            parts.append(replace(part, depth=part.depth + 1, layers=layers, useful=useful))
        return parts if len(ends) > 1 else None

    def _below(self, layers: Layers, found: Class) -> bool:
        """Whether the best path of a class is below the cutoff in both lanes; then it is kept."""
        if found.path is None:
            return False
        arcs, splits = path_of(layers, found.path[None])
        below = int(evaluate(self.problem, arcs, splits).step_time[0]) < self.cutoff
        if below:
            stages = zip(self.problem.stages, arcs[0], strict=True)
            self.found = Pair(np.array([one.column[arc] for one, arc in stages]).T, splits[0])
        return below


class Pairs:
    """Pairs of replicas of a shape whose nodes are of three kinds.

    common: per stage [J, n, n] what any replica may run below the cutoffs to come. found: the last
    pair that no more can be said of than that it is below the cutoff.
    """

    def __init__(self, replica: LightReplica, common: list[Mask]) -> None:
        self.replica, self.common = replica, common
        self.found: Pair | None = None
        rank = replica.rank.tolist()
        self.rank = tuple(rank)
        self.dp, stages = replica.tables.shape.dp, replica.tables.shape.pp
        self.fast, self.near = (int(replica.slots[rank.index(r)]) for r in (0, 1))
        self.whole = self.fast // self.dp
        self.weight = self.near // (self.dp - self.fast % self.dp) + 1
        self.tallies = [(a, b) for a in range(stages + 1) for b in range(stages + 1 - a)]

    @staticmethod
    def suit(replica: LightReplica) -> bool:
        """Whether there are three kinds: a replica with more of two then has less of a third."""
        return len(replica.kinds) == 3 and replica.tables.shape.pp > 1

    def _weighing(self, least: int, most: int) -> Counted:
        """Replicas of these weights."""
        return self._those(lambda a, b: least <= self.weight * a + b <= most)

    def _those(self, meant: Callable[[int, int], bool]) -> Counted:
        return Counted(self.rank, frozenset(tally for tally in self.tallies if meant(*tally)))

    def _thinned(
        self, light: list[Mask], tallies: Counted, cutoff: int, stop: Stop
    ) -> tuple[int, Thinned | None]:
        """A bound of replicas with these tallies, and what they may use below the cutoff.

        None if there is nothing, or too much of it: then there is no bound.
        """
        graph = self.replica.graph(self.common, light, tallies, MOST_OF_ALL)
        if graph is None:
            return 0, None
        left = self.replica.thinned(graph, cutoff, stop)
        return (cutoff, None) if left is None else (left.bound_ns, left)

    def _second(self, most: int) -> Counted | None:
        """Those of which the second is one if the first weighs `most`; None if both may be it."""
        weight, whole = self.weight, self.whole
        more = (most - weight * whole) * self.dp - self.near
        room = self.fast - whole * self.dp
        if room == 0 or more <= room:
            return None
        other = (more - 1) // room
        mean = (other * self.fast + self.near) // self.dp
        return self._those(lambda a, b: other * a + b <= mean and weight * a + b >= most)

    def bound_ns(self, cutoff: int, stop: Stop) -> int:
        """No plan of the shape is faster, as far as pairs show below the cutoff."""
        self.found = None
        most, bound, least = (self.weight * self.fast + self.near) // self.dp, cutoff, 0
        while True:
            known, light = self._thinned(self.common, self._weighing(0, most), cutoff, stop)
            least = known = max(least, known)
            second = self._second(most)
            if light is None or second is None or stop():
                return min(bound, known)
            first = self._weighing(most, most)
            bound = min(bound, self._case(light.masks, first, second, cutoff, stop))
            if bound <= known:
                return bound
            most -= 1

    def _case(
        self, light: list[Mask], first: Counted, second: Counted, cutoff: int, stop: Stop
    ) -> int:
        """As `bound_ns`, of plans with two such replicas; light: what the first may run."""
        known, one = self._thinned(light, first, cutoff, stop)
        if one is None:
            return known
        other, two = self._thinned(shared(self.common, one.masks), second, cutoff, stop)
        if two is None:
            return other
        pairs = paired(one, two)
        if pairs is None:
            return cutoff
        bound, problem, layers = max(known, other), *pairs
        if sum(map(len, layers)) > MOST_PAIRS:
            return bound
        descent = _Descent(problem, cutoff, stop)
        bound = max(bound, descent.bound_ns(layers))
        self.found = descent.found or self.found
        return bound
