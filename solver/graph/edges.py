"""The layered graph of all prefixes: nodes are (state, layer boundary), an edge is a stage.

A node at depth k says which layers and which machines the first k stages use; an edge runs layers
[start, end) by one arc. Complete paths are plans of the configuration, so sums and maxima along a
path are worked out for all plans at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self, TypeVar

import numpy as np

from solver.graph.problem import INFINITY, Array, Mask, SplitProblem


class ArrayRecord:
    """A dataclass of arrays whose last axis is that of the things they describe."""

    def take(self, keep: Mask | Array | slice) -> Self:
        """Some of the things, in their order."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        arrays = (n for n, value in values.items() if isinstance(value, np.ndarray))
        return type(self)(**values | {name: values[name][..., keep] for name in arrays})


@dataclass(frozen=True)
class Level(ArrayRecord):
    """M edges from the nodes of one depth to those of the next, sorted by source.

    source, target: [M] node ids.
    """

    source: Array
    target: Array
    num_sources: int
    num_targets: int

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def first(self) -> Array:
        """First edge of every source that has one."""
        return np.flatnonzero(np.diff(self.source, prepend=-1))

    @cached_property
    def range_of(self) -> tuple[Array, Array]:
        """[sources] first edge and number of edges."""
        count = np.bincount(self.source, minlength=self.num_sources)
        return np.cumsum(count) - count, count

    @cached_property
    def _by_target(self) -> tuple[Array, Array]:
        order = np.argsort(self.target, kind="stable")
        return order, np.flatnonzero(np.diff(self.target[order], prepend=-1))

    def from_sources(self, cost: Array) -> Array:
        """[.., sources] least of `cost` [.., M] over the edges of every source."""
        best = np.full((*cost.shape[:-1], self.num_sources), INFINITY)
        best[..., self.source[self.first]] = np.minimum.reduceat(cost, self.first, axis=-1)
        return np.minimum(best, INFINITY)

    def into_targets(self, cost: Array) -> Array:
        """[.., targets] least of `cost` [.., M] over the edges into every target."""
        order, first = self._by_target
        best = np.full((*cost.shape[:-1], self.num_targets), INFINITY)
        best[..., self.target[order[first]]] = np.minimum.reduceat(cost[..., order], first, axis=-1)
        return np.minimum(best, INFINITY)


@dataclass(frozen=True)
class Edges(Level):
    """M ways to run one stage; R lanes, ns. A node is state * n + layer boundary.

    arc, start, end: [M]. forward, backward, send, send_back: [R, M] as in `Arcs`. work, ahead,
    behind: [R, M] device time per micro-batch, and of its forward and backward, with blocking
    sends. term: [R, M] what the stage adds to the latency at least, see
    `solver.bounds.latency_bottleneck`. weight: [R, M] weight gradients, if split off. tail: [M]
    from the last backward to the end of the step, at least.
    """

    arc: Array
    start: Array
    end: Array
    forward: Array
    backward: Array
    send: Array
    send_back: Array
    work: Array
    ahead: Array
    behind: Array
    term: Array
    tail: Array
    weight: Array | None

    @cached_property
    def filled(self) -> Mask:
        """[M] whether the stage has layers."""
        filled: Mask = self.end > 0
        return filled

    @property
    def least(self) -> Array:
        """[R, M] device time of the shorter one of forward and backward."""
        return np.minimum(self.ahead, self.behind)

    @cached_property
    def opens(self) -> Mask:
        """[M] whether the stage is the first one with layers."""
        opens: Mask = (self.start == 0) & self.filled
        return opens

    @cached_property
    def latency(self) -> Array:
        """[R, M] of one micro-batch there and back: compute and transfers from and to before."""
        return self.forward + self.backward + self.send + self.send_back


Layers = list[Edges]
_Level = TypeVar("_Level", bound=Level)


def taken(layers: Sequence[_Level], masks: Sequence[Mask]) -> list[_Level]:
    """The edges of a mask per stage."""
    return [
        edges if mask.all() else edges.take(mask) for edges, mask in zip(layers, masks, strict=True)
    ]


def renumbered(layers: Layers) -> Layers:
    """The edges with nodes that have some, numbered from 0 on: the start and the end are 0."""
    numbered, before = list[Edges](), np.zeros(layers[0].num_sources, dtype=np.int64)
    number = 1
    for edges, after in zip(layers, [*layers[1:], None], strict=True):
        used = np.zeros(edges.num_targets, dtype=np.bool_)
        used[edges.target] = True
        if after is not None:
            used[after.source] = True
        numbers = np.cumsum(used) - 1
        numbered.append(
            replace(
                edges,
                source=before[edges.source],
                target=numbers[edges.target],
                num_sources=number,
                num_targets=int(used.sum()),
            )
        )
        before, number = numbers, int(used.sum())
    return numbered


def _from_start(problem: SplitProblem, cutoff: int) -> tuple[list[tuple[Array, ...]], Mask]:
    """Edges of ways from no layers on whose devices alone are not busy until the cutoff.

    Per stage arc, start and end [M], and [states, n] where the last of them lead to.
    """
    stages, size = list[tuple[Array, ...]](), problem.num_layers + 1
    reached = np.zeros((1, size), dtype=np.bool_)
    reached[:, 0] = True
    for arcs in problem.stages:
        alike_arcs: dict[tuple[int, bytes], list[int]] = {}
        for x, allowed in enumerate(arcs.allowed):
            alike_arcs.setdefault((id(allowed), arcs.column[x].tobytes()), []).append(x)
        edges, after = [], np.zeros((arcs.num_states, size), dtype=np.bool_)
        for alike in map(np.array, alike_arcs.values()):
            fits = arcs.allowed[alike[0]]
            column = arcs.column[alike[0]].tolist()
            for j, m in set(zip(column, problem.micro_batches, strict=True)):
                fits = fits & (m * problem.work[j] < cutoff)
            start, end = np.nonzero(fits)
            arc, run = np.nonzero(reached[arcs.source[alike]][:, start])
            after[arcs.target[alike[arc]], end[run]] = True
            edges.append((alike[arc], start[run], end[run]))
        stages.append(tuple(map(np.concatenate, zip(*edges, strict=True))))
        reached = after
    return stages, reached


def has_split(problem: SplitProblem) -> bool:
    """Whether any split fits."""
    return bool(problem.stages and _from_start(problem, int(INFINITY))[1][:, -1].any())


def build_layers(problem: SplitProblem, cutoff: int) -> Layers:
    """Edges of every stage on ways from no layers to all; without those too long for the cutoff.

    Those alone, that is: a device must not be busy until the cutoff.
    """
    stages, reached = _from_start(problem, cutoff)
    useful = np.zeros_like(reached)
    useful[:, -1] = True
    layers = []
    for k, (arc, start, end) in reversed([*enumerate(stages)]):
        arcs = problem.stages[k]
        leads = useful[arcs.target[arc], end]
        arc, start, end = arc[leads], start[leads], end[leads]
        useful = np.zeros((problem.states_before(k), problem.num_layers + 1), dtype=np.bool_)
        useful[arcs.source[arc], start] = True
        order = np.lexsort((arc, end, start, arcs.source[arc]))
        layers.append(edges_of(problem, k, arc[order], start[order], end[order]))
    return layers[::-1]


def bottlenecks(
    problem: SplitProblem, stage: int, ahead: Array, behind: Array, weight: Array | None = None
) -> Array:
    """[R, M] terms of edges of one stage, see `solver.bounds.latency_bottleneck`.

    ahead, behind, weight: [R, M] forward, backward and weight gradients of a micro-batch.
    """
    path_terms = []
    for forward, backward, weights in problem.left(stage):
        term = forward * ahead + backward * behind
        path_terms.append(term if weight is None else term + weights * weight)
    terms: Array = np.maximum(*path_terms) if len(path_terms) == 2 else path_terms[0]
    return terms


def edges_of(problem: SplitProblem, stage: int, arc: Array, start: Array, end: Array) -> Edges:
    """The edges of a stage on these arcs with layers [start, end), [M] each, sorted by source."""
    arcs, size = problem.stages[stage], problem.num_layers + 1
    columns = arcs.column[arc].T
    forward = problem.forward[columns, start, end]
    backward = problem.backward[columns, start, end]
    send, send_back = arcs.send[arc].T, arcs.send_back[arc].T
    ahead, behind = forward, backward
    if problem.blocking:
        if stage + 1 < problem.num_stages:
            # The least transfer to the next stage, by state after this one.
            onward = problem.stages[stage + 1]
            least_sends = np.full((arcs.num_states, problem.num_lanes), INFINITY)
            np.minimum.at(least_sends, onward.source, onward.send)
            ahead = forward + least_sends[arcs.target[arc]].T
        behind = backward + send_back
    work = ahead + behind
    weight = None if problem.weight is None else problem.weight[columns, start, end]
    if weight is not None:
        work = work + weight
    row = arcs.tail[arc]
    tail = problem.sync[row, start, end] + problem.finish[row, start, end]
    return Edges(
        arc=arc,
        start=start,
        end=end,
        source=arcs.source[arc] * size + start,
        target=arcs.target[arc] * size + end,
        forward=forward,
        backward=backward,
        send=send,
        send_back=send_back,
        work=work,
        ahead=ahead,
        behind=behind,
        term=bottlenecks(problem, stage, ahead, behind, weight),
        tail=tail + arcs.embedding[arc] * problem.tied,
        weight=weight,
        num_sources=size * problem.states_before(stage),
        num_targets=size * arcs.num_states,
    )


def to_go(layers: Sequence[Level], costs: Sequence[Array]) -> list[Array]:
    """Least sum of `costs` (p times [.., M]) from a node to the end: p + 1 times [.., nodes]."""
    distances = [np.zeros((*costs[-1].shape[:-1], layers[-1].num_targets), dtype=np.int64)]
    for edges, cost in zip(reversed(layers), reversed(costs), strict=True):
        distances.append(edges.from_sources(cost + distances[-1][..., edges.target]))
    return distances[::-1]


def so_far(layers: Sequence[Level], costs: Sequence[Array]) -> list[Array]:
    """Least sum of `costs` (p times [.., M]) from the start to a node: p + 1 times [.., nodes]."""
    start = np.full((*costs[0].shape[:-1], layers[0].num_sources), INFINITY)
    start[..., 0] = 0
    distances = [start]
    for edges, cost in zip(layers, costs, strict=True):
        distances.append(edges.into_targets(cost + distances[-1][..., edges.source]))
    return distances


def shortest_path(
    layers: Sequence[Level], costs: Sequence[Array], onward: Sequence[Array]
) -> Array:
    """Edges [p] of least sum of `costs` [M] from the start to the end; onward: what is `to_go`."""
    node, path = 0, []
    for edges, cost, rest in zip(layers, costs, onward[1:], strict=True):
        first, count = (int(x[node]) for x in edges.range_of)
        run = slice(first, first + count)
        path.append(first + int((cost[run] + rest[edges.target[run]]).argmin()))
        node = int(edges.target[path[-1]])
    return np.array(path)
