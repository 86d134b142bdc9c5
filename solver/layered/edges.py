"""The layered graph of all prefixes: nodes are (state, layer boundary), an edge is a stage.

A node at depth k says which layers and which machines the first k stages use; an edge runs layers
[start, end) by one arc. Complete paths are plans of the shape, so sums and maxima along a path are
worked out for all plans at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solver.layered.problem import INFINITY, Array, Mask, SplitProblem


@dataclass(frozen=True)
class Edges:
    """M ways to run one stage, sorted by source; R lanes, ns.

    arc, start, end: [M]. source, target: [M] node ids, state * n + layer boundary. forward,
    backward, send, send_back: [R, M] as in `Arcs`. work, ahead, behind: [R, M] device time per
    micro-batch, and of its forward and backward, with blocking sends. term: [R, M] what the stage
    adds to the latency at least, see `solver.bounds.latency_bottleneck`. weight: [R, M] weight
    gradients, if split off. tail: [M] from the last backward to the end of the step, at least.
    """

    arc: Array
    start: Array
    end: Array
    source: Array
    target: Array
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
    num_sources: int
    num_targets: int

    def __len__(self) -> int:
        return len(self.arc)

    @property
    def least(self) -> Array:
        """[R, M] device time of the shorter one of forward and backward."""
        return np.minimum(self.ahead, self.behind)

    @cached_property
    def latency(self) -> Array:
        """[R, M] of one micro-batch there and back: compute and transfers from and to before."""
        return self.forward + self.backward + self.send + self.send_back

    def take(self, keep: Mask) -> "Edges":
        """The edges of a mask."""
        return Edges(
            self.arc[keep],
            self.start[keep],
            self.end[keep],
            self.source[keep],
            self.target[keep],
            self.forward[:, keep],
            self.backward[:, keep],
            self.send[:, keep],
            self.send_back[:, keep],
            self.work[:, keep],
            self.ahead[:, keep],
            self.behind[:, keep],
            self.term[:, keep],
            self.tail[keep],
            None if self.weight is None else self.weight[:, keep],
            self.num_sources,
            self.num_targets,
        )

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


Layers = list[Edges]


def taken(layers: Layers, masks: Sequence[Mask]) -> Layers:
    """The edges of a mask per stage."""
    return [
        edges if mask.all() else edges.take(mask) for edges, mask in zip(layers, masks, strict=True)
    ]


def _embedding(problem: SplitProblem, stage: int) -> Array | int:
    """[A] what tied embeddings add to the tail of a stage, at least."""
    if not problem.tied or stage not in (0, problem.num_stages - 1):
        return 0
    return problem.stages[stage].embedding


def _least_send(problem: SplitProblem, stage: int) -> Array:
    """[states, R] least transfer to the stage after `stage`, by state after it."""
    shape = (problem.stages[stage].num_states, problem.num_lanes)
    if stage + 1 == problem.num_stages:
        return np.zeros(shape, dtype=np.int64)
    after = problem.stages[stage + 1]
    least = np.full(shape, INFINITY)
    np.minimum.at(least, after.source, after.send)
    return least


def _candidates(problem: SplitProblem, stage: int, cutoff: int) -> tuple[Array, Array, Array]:
    """Arc, start and end of every edge whose device alone is not busy until the cutoff.

    The first stage starts with the first layer, the last ends with the last.
    """
    arcs = problem.stages[stage]
    found: dict[tuple[int, bytes], tuple[Array, ...]] = {}
    rows = []
    for x, allowed in enumerate(arcs.allowed):
        key = (id(allowed), arcs.column[x].tobytes())
        if key not in found:
            fits = allowed
            for j, m in set(zip(arcs.column[x].tolist(), problem.micro_batches, strict=True)):
                fits = fits & (m * problem.work[j] < cutoff)
            found[key] = np.nonzero(fits)
        rows.append(found[key])
    counts = [len(start) for start, _ in rows]
    arc = np.repeat(np.arange(len(rows)), counts)
    starts = np.concatenate([start for start, _ in rows])
    ends = np.concatenate([end for _, end in rows])
    inside = np.ones(len(arc), dtype=bool)
    if stage == 0:
        inside &= starts == 0
    if stage == problem.num_stages - 1:
        inside &= ends == problem.num_layers
    order = np.flatnonzero(inside)
    order = order[np.lexsort((ends[order], starts[order], arcs.source[arc[order]]))]
    return arc[order], starts[order], ends[order]


def bottlenecks(
    problem: SplitProblem, stage: int, ahead: Array, behind: Array, weight: Array | None = None
) -> Array:
    """[R, M] terms of edges of one stage, see `solver.bounds.latency_bottleneck`.

    ahead, behind, weight: [R, M] forward, backward and weight gradients of a micro-batch.
    """
    found = []
    for forward, backward, weights in problem.left(stage):
        term = forward * ahead + backward * behind
        found.append(term if weight is None else term + weights * weight)
    terms: Array = np.maximum(*found) if len(found) == 2 else found[0]
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
        least_send = _least_send(problem, stage)
        ahead = forward + least_send[arcs.target[arc]].T
        behind = backward + send_back
    work = ahead + behind
    weight = None if problem.weight is None else problem.weight[columns, start, end]
    if weight is not None:
        work = work + weight
    row = arcs.tail[arc]
    tail = problem.sync[row, start, end] + problem.finish[row, start, end]
    embedding = _embedding(problem, stage)
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
        tail=tail + (embedding[arc] if isinstance(embedding, np.ndarray) else embedding),
        weight=weight,
        num_sources=size * (problem.stages[stage - 1].num_states if stage else 1),
        num_targets=size * arcs.num_states,
    )


def build_layers(problem: SplitProblem, cutoff: int) -> Layers:
    """Edges of every stage; without those that alone take a split to the cutoff."""
    return [
        edges_of(problem, k, *_candidates(problem, k, cutoff)) for k in range(problem.num_stages)
    ]


def to_go(layers: Layers, costs: Sequence[Array]) -> list[Array]:
    """Least sum of `costs` (p times [.., M]) from a node to the end: p + 1 times [.., nodes]."""
    found = [np.zeros((*costs[-1].shape[:-1], layers[-1].num_targets), dtype=np.int64)]
    for edges, cost in zip(reversed(layers), reversed(costs), strict=True):
        found.append(edges.from_sources(cost + found[-1][..., edges.target]))
    return found[::-1]


def so_far(layers: Layers, costs: Sequence[Array]) -> list[Array]:
    """Least sum of `costs` (p times [.., M]) from the start to a node: p + 1 times [.., nodes]."""
    start = np.full((*costs[0].shape[:-1], layers[0].num_sources), INFINITY)
    start[..., 0] = 0
    found = [start]
    for edges, cost in zip(layers, costs, strict=True):
        found.append(edges.into_targets(cost + found[-1][..., edges.source]))
    return found
