"""One replica in place of all: a bound for shapes with too many node orders to try.

Give a slot of node group j a weight w_j. All slots of the shape together weigh W, so one of the
dp replicas weighs at most W / dp, the mean. The step takes no less time than that replica: its
stages stand on some groups, of total weight at most floor(W / dp), with transfers and tails that
no order makes shorter. The least over all such groups and all splits is therefore a lower bound
of the step time of every plan with even shares. Weights like the speeds of the GPUs make it
strong: the replica cannot have more than its share of the fast ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from formulations.costs.placement import NodeTerms, Placer, SyncPhase
from formulations.costs.tables import CostTables
from formulations.units import ceil_div
from solver.enumeration.completion import tighten
from solver.enumeration.layered import Layers, build_layers
from solver.enumeration.placements import allowed_layers
from solver.enumeration.problem import Arcs, Array, Intervals, Mask, SplitProblem, interval_sums

#: Weight of the fastest group, and the units that weights are rounded down to: first no weight.
FINEST_WEIGHT = 24
COARSE = (1 << 30, 8, 4, 2, 1)
#: With more edges than these a unit is not made finer.
MOST_EDGES = 300_000


@dataclass(frozen=True)
class _Least:
    """What a node group costs at least, wherever its nodes stand; ns.

    inside: transfer to the next stage on the same node, None if no node has two; outside: to or
    from another node. sync, gather: [L] and start-up. embedding: tied embeddings, where it has a
    node on the first stage, and on the last.
    """

    inside: int | None
    outside: int
    sync: tuple[Array, int]
    gather: tuple[Array, int]
    embedding: tuple[int, int]


def _starts(placer: Placer, j: int) -> range | list[int]:
    """First slots of a node that between them show all its terms: they repeat from stage to stage.

    Only the first and the last stages differ, as nothing enters the ones or leaves the others.
    """
    tables = placer.tables
    dp, slots = tables.shape.dp, tables.shape.slots
    used = [
        size for size, n in zip(tables.slots_per_node, tables.shape.nodes_used, strict=True) if n
    ]
    step, last = gcd(*used), slots - tables.slots_per_node[j]
    near = 2 * dp + step
    if last <= 2 * near:
        return range(0, last + 1, step)
    return [*range(0, near, step), *range(last - last % step - near // step * step, last + 1, step)]


def _sync(placer: Placer, phase: SyncPhase, nodes: list[NodeTerms]) -> tuple[Array, int]:
    """[L] and start-up that no stage with such a node undercuts."""
    tables = placer.tables
    cluster, dp = tables.instance.cluster, tables.shape.dp
    fewest = ceil_div(dp, max(tables.slots_per_node))
    counts = range(max(2, fewest), min(dp, sum(tables.shape.nodes_used)) + 1)
    least: list[tuple[Array, int]] = []
    pairs = {
        (node.inside_s_per_byte[k], node.inside_latency_s[k], node.outside_s_per_byte.get(k))
        for node in nodes
        for k in node.inside_s_per_byte
    }
    for rate, latency_s, outside in pairs:
        inside, start = phase.inside_ns(rate), phase.latency_ns(latency_s, 1, 0.0)
        if outside is not None:
            rings = [phase.outside_ns(outside, n, cluster.efficiency(n)) for n in counts]
            inside = inside + np.min(rings, axis=0)
        least.append((inside, start))
    return np.min([ring for ring, _ in least], axis=0), min(start for _, start in least)


def _least(placer: Placer, j: int) -> _Least:
    tables = placer.tables
    dp, size = tables.shape.dp, tables.slots_per_node[j]
    starts = _starts(placer, j)
    nodes = [placer.terms(j, start) for start in starts]
    inside: list[int] = []
    outside: list[int] = []
    for start, node in zip(starts, nodes, strict=True):
        for slot, time in node.send_ns.items():
            own = start <= slot and slot + dp < start + size
            (inside if own else outside).append(time)
    none = np.zeros(tables.num_layers, dtype=np.int64), 0
    last = tables.shape.slots - dp
    embedding = [(start, node.embedding_ns) for start, node in zip(starts, nodes, strict=True)]
    return _Least(
        inside=min(inside, default=None),
        outside=min(outside, default=0),
        sync=_sync(placer, placer.sync, nodes),
        gather=_sync(placer, placer.gather, nodes) if placer.gather else none,
        embedding=(
            min(time for start, time in embedding if start < dp),
            min(time for start, time in embedding if start + size > last),
        ),
    )


class Relaxation:
    """The one replica of a shape, see the header."""

    def __init__(self, intervals: Intervals, placer: Placer) -> None:
        self.intervals = intervals
        self.tables = intervals.tables
        shape = self.tables.shape
        self.used = [j for j, n in enumerate(shape.nodes_used) if n]
        self.least = [_least(placer, j) for j in self.used]
        self.micro_batches = self.tables.num_micro_batches // shape.dp
        times = [int(intervals.forward[j, 0, -1] + intervals.backward[j, 0, -1]) for j in self.used]
        self.weights = [max(1, round(FINEST_WEIGHT * min(times) / time)) for time in times]
        slots = [shape.nodes_used[j] * self.tables.slots_per_node[j] for j in self.used]
        whole = sum(w * n for w, n in zip(self.weights, slots, strict=True))
        self.most = whole // shape.dp
        self.allowed = [
            [allowed_layers(intervals, k, [j], [self.micro_batches]) for j in self.used]
            for k in range(shape.pp)
        ]

    def problem(self, cutoff: int) -> SplitProblem | None:
        """A problem with all replicas faster than `cutoff`; None if there are none.

        Weights are rounded down to multiples of a coarse unit first: whoever keeps to the weight
        keeps to that. What such a replica cannot use is left out when the unit gets finer.
        """
        masks = self.allowed
        for unit in COARSE:
            problem = self._problem(unit, masks)
            layers = tighten(problem, build_layers(problem, cutoff), cutoff)
            if layers is None:
                return None
            masks = self._used_by(problem, layers)
            if sum(map(len, layers)) > MOST_EDGES:
                break
        return replace(problem, stages=self._masked(problem, masks))

    def num_edges(self, cutoff: int) -> int:
        """Edges of the coarsest problem whose devices alone are not busy until the cutoff."""
        total = 0
        for own, rows in zip(self.allowed, self._rows(COARSE[0]), strict=True):
            arcs = np.bincount([now for *_, now in rows], minlength=len(self.used))
            for j, mask, count in zip(self.used, own, arcs.tolist(), strict=True):
                work = self.intervals.forward[j] + self.intervals.backward[j]
                total += count * int((mask & (self.micro_batches * work < cutoff)).sum())
        return total

    def _masked(self, problem: SplitProblem, masks: list[list[Mask]]) -> tuple[Arcs, ...]:
        return tuple(
            replace(stage, allowed=tuple(own[j] for j in stage.tail))
            for stage, own in zip(problem.stages, masks, strict=True)
        )

    def _used_by(self, problem: SplitProblem, layers: Layers) -> list[list[Mask]]:
        """Per stage and group the layers that some edge runs there."""
        found = []
        for stage, edges in zip(problem.stages, layers, strict=True):
            masks = np.zeros((len(self.used), *self.intervals.allowed.shape), dtype=np.bool_)
            masks[stage.tail[edges.arc], edges.start, edges.end] = True
            found.append(list(masks))
        return found

    def _rows(self, unit: int) -> Iterator[list[tuple[int, int, int, int]]]:
        """Per stage: state before and after, index of the group before and now."""
        weights = [weight // unit for weight in self.weights]
        most, p = self.most // unit, self.tables.shape.pp
        states = {(0, 0): 0}
        for k in range(p):
            found: dict[tuple[int, int], int] = {}
            rows = []
            for (before, weight), index in states.items():
                for now, own in enumerate(weights):
                    whole = weight + own
                    if whole + min(weights) * (p - 1 - k) <= most:
                        target = found.setdefault((now, whole), len(found))
                        rows.append((index, target, before, now))
            yield rows
            states = found

    def _problem(self, unit: int, masks: list[list[Mask]]) -> SplitProblem:
        stages = []
        for k, rows in enumerate(self._rows(unit)):
            source, target, _, now = (np.array(column) for column in zip(*rows, strict=True))
            sends = [self._send_ns(i, j) if k else 0 for _, _, i, j in rows]
            send = np.array(sends, dtype=np.int64)[:, None]
            stages.append(
                Arcs(
                    source=source,
                    target=target,
                    column=np.array(self.used)[now][:, None],
                    send=send,
                    send_back=send,
                    tail=now,
                    embedding=self._embedding_ns(k)[now],
                    allowed=tuple(masks[k][j] for j in now),
                    begins=tuple((self.used[j],) for j in now),
                )
            )
        gathers = [interval_sums(one.gather[0]) + one.gather[1] for one in self.least]
        return SplitProblem(
            schedule=self.tables.shape.schedule,
            blocking=self.tables.instance.search.blocking_sends,
            tied=self.tables.embedding_bytes > 0,
            stages=tuple(stages),
            micro_batches=(self.micro_batches,),
            forward=self.intervals.forward,
            backward=self.intervals.backward,
            sync=np.stack([interval_sums(one.sync[0]) + one.sync[1] for one in self.least]),
            finish=self.intervals.optimizer[self.used] + np.stack(gathers),
        )

    def _embedding_ns(self, k: int) -> Array:
        """[groups used] what each adds to the tail of stage k at least."""
        last = k == self.tables.shape.pp - 1
        times = [one.embedding[1 if last else 0] for one in self.least]
        return np.array(times, dtype=np.int64)

    def _send_ns(self, before: int, now: int) -> int:
        """Least transfer between stages on two groups: the slower side counts."""
        outside = max(self.least[before].outside, self.least[now].outside)
        inside = self.least[now].inside
        return min(inside, outside) if before == now and inside is not None else outside


def order_along(tables: CostTables, groups: Sequence[int]) -> tuple[int, ...]:
    """A node order in which stage k stands on `groups[k]` as far as there are nodes.

    Where these run out, nodes of the group with the most slots to spare take their place, of at
    least equal speed if there are such.
    """
    shape, sizes = tables.shape, tables.slots_per_node
    times = (tables.forward_ns + tables.backward_ns).sum(axis=0)
    left = list(shape.nodes_used)
    needed = [shape.dp * list(groups).count(j) for j in range(len(left))]
    order: list[int] = []
    filled = 0
    for k, wanted in enumerate(groups):
        needed[wanted] -= shape.dp
        while filled < (k + 1) * shape.dp:
            spare = {j: left[j] * sizes[j] - needed[j] for j, n in enumerate(left) if n}
            fast = {j: n for j, n in spare.items() if times[j] <= times[wanted]}
            others = fast or spare
            group = wanted if left[wanted] else max(others, key=lambda j: others[j])
            order.append(group)
            left[group] -= 1
            filled += sizes[group]
    return tuple(order)
