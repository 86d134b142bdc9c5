"""Work and latency of shapes whose stages have degrees of their own.

All replicas are alike, with m micro-batches each. For every stage i, one way through the step has
what a micro-batch takes on each stage, t, there and back, and c_i t_i besides, see `passes_left`;
and the GPUs of stage i are busy for m t_i. Let c be the least c_i. Weigh stage i by its GPUs times
v of their node group, over the same sum for all GPUs of the nodes used: stages fill these, so the
weights add up to 1. The weighted mean of those ways is as long as a step at most, and so is that of
the busy times:

    T >= sum of t_i (1 + c weight_i),    T >= sum of m t_i weight_i

where each layer counts no less than at the place that makes its term least. The ways also pass all
pp - 1 boundaries of stages twice. A stage on n nodes hides n - 1 of the borders between nodes, and
all n together are the nodes used: so with N the most that a stage may have, no fewer than
nodes / N - 1 boundaries lie between nodes. Any v >= 0 will do: here that by which a node group does
all layers in equal time. Weights of 1 / pp for every stage add up to 1, too, and so does any mean
of the two, and the former with some of the latter taken off, as long as no place has a negative
one. A stage has as many GPUs as the other pp - 1 leave it, which have the smallest slots at least.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from formulations.costs.stage_places import with_places
from formulations.plan import Shape
from formulations.slot_degrees import Place
from formulations.units import ceil_div
from solver.verify.bounds import Prover
from solver.verify.closed_forms import passes_left
from solver.verify.findings import NOISE
from solver.verify.link_times import outside_s
from solver.verify.stage_orders import places_of
from solver.verify.volumes import message_bytes, message_lanes

Numbers = NDArray[np.float64]


class StageWork:
    """The bounds for all shapes of an instance."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.instance = prover, prover.instance
        self._known: dict[tuple[object, ...], Numbers] = {}

    def _times(self, shape: Shape, places: list[Place]) -> Numbers:
        """[2, L, C] forward and backward of every layer by place."""
        key = shape.micro_batch, shape.recompute[0], tuple(places)
        if key not in self._known:
            wide, own = with_places(self.instance, shape, places)
            prover = Prover(type(self.prover.space)(wide))
            times = prover.times(own.degrees, shape.micro_batch, shape.recompute[0])
            self._known[key] = np.array([times.forward_ns, times.backward_ns], dtype=np.float64)
        return self._known[key]

    def _places(self, shape: Shape) -> list[Place]:
        """Those that leave the other stages the smallest slots."""
        groups = zip(self.instance.cluster.groups, shape.nodes_used, strict=True)
        known = places_of(self.prover.space, shape)
        others = (shape.pp - 1) * shape.dp * min(own.width for _, own in known)
        left = sum(n * group.gpus_per_node for group, n in groups) - others
        return [(j, own) for j, own in known if own.width * shape.dp <= left]

    def _by_gpus(self, shape: Shape, places: list[Place], whole: Numbers) -> Numbers:
        """[C] weights of a stage of one replica at every place, by its GPUs."""
        width = np.array([degrees.width for _, degrees in places], dtype=np.float64)
        busy, group = np.maximum(whole.sum(axis=0) * width, 1), np.array([j for j, _ in places])
        v = {j: 1 / float(busy[group == j].min()) for j in set(group.tolist())}
        sizes = [one.gpus_per_node for one in self.instance.cluster.groups]
        gpus = sum(v[j] * shape.nodes_used[j] * sizes[j] for j in v)
        weights: Numbers = np.array([v[j] for j in group.tolist()]) * width / gpus
        return weights

    def bound_ns(self, shape: Shape) -> int:
        """No plan has a shorter step."""
        places = self._places(shape)
        times = self._times(shape, places)
        whole, dp = times.sum(axis=0), shape.dp
        m = self.instance.workload.global_batch // shape.micro_batch // dp
        shares = np.zeros((3, 1))
        shares[:2, 0] = np.where(whole > 0, times / np.maximum(whole, 1), 0.0).max(axis=(1, 2))
        left = max(0.0, float(passes_left([shape], shares, np.array([m])).min()))
        by_gpus, once_ns = self._by_gpus(shape, places, whole), self._once_ns(shape, places)
        bounds = []
        for weights in _with_even(by_gpus, 1 / (dp * shape.pp), shape.pp / max(left, 1.0)):
            bounds.append((whole * (1 + left * dp * weights)).min(axis=1).sum() + once_ns)
            bounds.append((whole * (m * dp * weights)).min(axis=1).sum())
        return int(max(bounds) * (1 - 1000 * NOISE))

    def _once_ns(self, shape: Shape, places: list[Place]) -> float:
        """Least messages of a micro-batch between nodes, there and back."""
        wide, own = with_places(self.instance, shape, places)
        tensors = min(layer.output_tensors for layer in wide.workload.layers)
        most, least = 1, float("inf")
        for x, (group, degrees) in enumerate(zip(wide.cluster.groups, own.degrees, strict=True)):
            span = ceil_div(own.dp * degrees.width, group.gpus_per_node)
            flows = own.dp // span * message_lanes(wide, own, x, degrees.tp)
            size = tensors * message_bytes(wide, own, x)
            time = outside_s(wide, degrees.tp, group, group.inter_node, flows, size)
            most, least = max(most, span), min(least, time)
        return 2e9 * (ceil_div(sum(shape.nodes_used), most) - 1) * least


def _with_even(gpus: Numbers, evenly: float, far: float) -> Iterator[Numbers]:
    """Weights of places, none negative: those by GPUs, with even ones, or less these up to far."""
    least = float(gpus.min())
    most = far if least >= evenly else min(far, least / (evenly - least))
    for part in (0, 0.5, -most):
        yield np.maximum((1 - part) * gpus + part * evenly, 0.0)
