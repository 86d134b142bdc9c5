"""Work and filling of shapes whose stages have degrees of their own.

All replicas are alike, with m micro-batches each. For every stage i, one way through the step has
what a micro-batch takes on each stage, t, there and back, and c_i t_i besides: m - 1 less what the
way misses on stage i, see `filling`; and the GPUs of stage i are busy for m t_i. Let c be the least
c_i. Weigh stage i by its GPUs times v of their node group, over the same sum for all GPUs of the
nodes used: stages fill these, so the weights add up to 1. The weighted mean of those ways is as
long as a step at most, and so is that of the busy times:

    T >= sum of t_i (1 + c weight_i),    T >= sum of m t_i weight_i

where each layer counts no less than at the place that makes its term least. The ways also pass all
pp - 1 boundaries of stages twice, and end before tied embeddings are reduced. A stage on n nodes
hides n - 1 of the borders between nodes, and all n together are the nodes used: so with N the most
that a stage may have, no fewer than nodes / N - 1 boundaries lie between nodes. Any v >= 0 will do:
that by which a node group does its blocks in equal time, and that with one group raised or lowered.
Weights of 1 / pp for every stage add up to 1, too, and so does any mean of the two, and the former
with some of the latter taken off, as long as no place has a negative one. A stage has as many GPUs
as the other pp - 1 leave it, which have the smallest slots at least.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.costs.stage_places import with_places
from formulations.plan import Shape
from formulations.schedules import SCHEDULES
from formulations.slot_degrees import Place
from formulations.units import ceil_div
from solver.verify.bounds import Prover
from solver.verify.findings import NOISE
from solver.verify.link_times import inside_s, outside_s, pair_s
from solver.verify.stage_orders import places_of
from solver.verify.volumes import message_bytes, message_lanes, tied_bytes

Numbers = NDArray[np.float64]

EVENLY = (0.0, 0.3, 0.6, 0.9)  #: parts of 1 / pp in a mean
OFF = (1 / 3, 2 / 3, 1.0)  #: of the most of it that can be taken off
#: What v of one group is raised or lowered by.
SCALES = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.45, 1.8, 2.5, 4.0)


class StageWork:
    """The bounds for all shapes of an instance."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.instance = prover, prover.instance
        self._known: dict[tuple[object, ...], tuple[Numbers, Numbers, list[Numbers]]] = {}

    def _terms(self, shape: Shape) -> tuple[Numbers, Numbers, list[Numbers]]:
        """[L, C] t of every layer by place, share of forward, and [C] weights of a replica."""
        places = self._places(shape)
        key = shape.micro_batch, shape.recompute[0], shape.nodes_used, tuple(places)
        if key not in self._known:
            wide, own = with_places(self.instance, shape, places)
            times = Prover(type(self.prover.space)(wide)).times(
                own.degrees, shape.micro_batch, shape.recompute[0]
            )
            whole = (times.forward_ns + times.backward_ns).astype(np.float64)
            share = np.where(whole > 0, times.forward_ns / np.maximum(whole, 1), 0.5)
            groups = [j for j, _ in places]
            width = np.array([degrees.width for _, degrees in places], dtype=np.float64)
            weights = list(self._weights(shape, groups, width, whole.sum(axis=0) * width))
            self._known[key] = whole, share, weights
        return self._known[key]

    def _places(self, shape: Shape) -> list[Place]:
        """Those that leave the other stages the smallest slots."""
        groups = zip(self.instance.cluster.groups, shape.nodes_used, strict=True)
        known = places_of(self.prover.space, shape)
        others = (shape.pp - 1) * shape.dp * min(own.width for _, own in known)
        left = sum(n * group.gpus_per_node for group, n in groups) - others
        return [(j, own) for j, own in known if own.width * shape.dp <= left]

    def _weights(
        self, shape: Shape, groups: Sequence[int], width: Numbers, busy: Numbers
    ) -> Iterator[Numbers]:
        """[C] of one replica's GPUs at every place, for several v."""
        used = sorted(set(groups))
        gpus = {
            j: shape.nodes_used[j] * self.instance.cluster.groups[j].gpus_per_node for j in used
        }
        fastest = {j: min(t for t, i in zip(busy, groups, strict=True) if i == j) for j in used}
        for raised in used:
            for scale in SCALES:
                v = {j: (scale if j == raised else 1) / max(1.0, fastest[j]) for j in used}
                whole = sum(v[j] * gpus[j] for j in used)
                yield np.array([v[j] for j in groups]) * width / whole

    def bound_ns(self, shape: Shape) -> int:
        """No plan has a shorter step."""
        whole, share, weights = self._terms(shape)
        m = self.instance.workload.global_batch // shape.micro_batch // shape.dp
        left, once_s = self._left(shape, m, share), self._once_s(shape)
        terms = (
            max(
                (whole * (1 + left * shape.dp * own)).min(axis=1).sum() + once_s * 1e9,
                (whole * (m * shape.dp * own)).min(axis=1).sum(),
            )
            for gpus in weights
            for own in _with_even(gpus, 1 / (shape.dp * shape.pp), shape.pp / max(left, 1.0))
        )
        return int(max(terms) * (1 - 1000 * NOISE))

    def _once_s(self, shape: Shape) -> float:
        """Least messages of a micro-batch, there and back, and tied embeddings."""
        places, nodes = self._places(shape), sum(shape.nodes_used)
        wide, own = with_places(self.instance, shape, places)
        tensors = min(layer.output_tensors for layer in wide.workload.layers)
        spans, inside, outside, tied = [], [], [], []
        for x, (group, degrees) in enumerate(zip(wide.cluster.groups, own.degrees, strict=True)):
            spans.append(ceil_div(own.dp * degrees.width, group.gpus_per_node))
            slots, size = own.dp // spans[-1], tensors * message_bytes(wide, own, x)
            flows = slots * message_lanes(wide, own, x, degrees.tp)
            inside.append(inside_s(group, size))
            outside.append(outside_s(wide, degrees.tp, group, group.inter_node, flows, size))
            link, lanes = group.intra_node, 1
            if nodes > 1:
                link, lanes = group.inter_node, slots * degrees.width
            tied.append(pair_s(link, lanes, copy) if (copy := tied_bytes(wide, own, x)) else 0.0)
        between = ceil_div(nodes, max(spans)) - 1
        others = max(0, own.pp - 1 - between) * min(*inside, *outside)
        return 2 * (between * min(outside) + others) + min(tied)

    def _left(self, shape: Shape, m: int, share: Numbers) -> float:
        """C, or 0."""
        least = []
        for k in range(shape.pp):
            columns = (np.array([one]) for one in (shape.pp, k, m, 1))
            ways = SCHEDULES[shape.schedule].missed(*columns)
            least.append(
                max(
                    m - 1 - share.max() * way.forward[0] - (1 - share.min()) * way.backward[0]
                    for way in ways
                )
            )
        return max(0.0, float(min(least)))


def _with_even(gpus: Numbers, evenly: float, far: float) -> Iterator[Numbers]:
    """Weights of places, none negative: those by GPUs with some of even ones, or less up to far."""
    least = float(gpus.min())
    most = far if least >= evenly else min(far, least / (evenly - least))
    for part in (*EVENLY, *(-most * off for off in OFF)):
        yield np.maximum((1 - part) * gpus + part * evenly, 0.0)
