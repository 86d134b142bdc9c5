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

from formulations.costs.stage_places import stage_tables
from formulations.costs.tables import CostTables
from formulations.costs.transfers import outside_ns
from formulations.plan import Shape
from formulations.slot_degrees import Place
from formulations.units import ceil_div
from solver.verify.bounds import Prover
from solver.verify.closed_forms import passes_left
from solver.verify.findings import NOISE
from solver.verify.stage_orders import places_of

Numbers = NDArray[np.float64]


class StageWork:
    """The bounds for all shapes of an instance."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.instance = prover, prover.instance
        self._tables: dict[tuple[object, ...], CostTables] = {}

    def _tables_of(self, shape: Shape, places: tuple[Place, ...]) -> CostTables:
        """Tables by place [C], for layer times and messages of any number of replicas."""
        key = shape.micro_batch, shape.recompute[0], places
        if key not in self._tables:
            self._tables[key] = stage_tables(self.instance, shape, places)
        return self._tables[key]

    def _places(self, shape: Shape) -> tuple[Place, ...]:
        """Those that leave the other stages the smallest slots."""
        groups = zip(self.instance.cluster.groups, shape.nodes_used, strict=True)
        places = places_of(self.prover.space, shape)
        others = (shape.pp - 1) * shape.dp * min(degrees.width for _, degrees in places)
        rest = sum(n * group.gpus_per_node for group, n in groups) - others
        return tuple(place for place in places if place[1].width * shape.dp <= rest)

    def _by_gpus(self, shape: Shape, places: tuple[Place, ...], work: Numbers) -> Numbers:
        """[C] weights of a stage of one replica at every place, by its GPUs."""
        width = np.array([degrees.width for _, degrees in places], dtype=np.float64)
        busy, group = np.maximum(work.sum(axis=0) * width, 1), np.array([j for j, _ in places])
        v = {j: 1 / float(busy[group == j].min()) for j in set(group.tolist())}
        sizes = [node_group.gpus_per_node for node_group in self.instance.cluster.groups]
        gpus = sum(v[j] * shape.nodes_used[j] * sizes[j] for j in v)
        weights: Numbers = np.array([v[j] for j in group.tolist()]) * width / gpus
        return weights

    def bound_ns(self, shape: Shape) -> int:
        """No plan has a shorter step."""
        places = self._places(shape)
        tables = self._tables_of(shape, places)
        times = np.array([tables.forward_ns, tables.backward_ns], dtype=np.float64)  # [2, L, C]
        work, dp = times.sum(axis=0), shape.dp
        m = self.instance.workload.global_batch // shape.micro_batch // dp
        shares = np.zeros((3, 1))
        shares[:2, 0] = np.where(work > 0, times / np.maximum(work, 1), 0.0).max(axis=(1, 2))
        c = max(0.0, float(passes_left([shape], shares, np.array([m])).min()))
        by_gpus, once_ns = self._by_gpus(shape, places, work), self._once_ns(shape, tables)
        bounds = []
        for weights in _with_even(by_gpus, 1 / (dp * shape.pp), shape.pp / max(c, 1.0)):
            bounds.append((work * (1 + c * dp * weights)).min(axis=1).sum() + once_ns)
            bounds.append((work * (m * dp * weights)).min(axis=1).sum())
        return int(max(bounds) * (1 - 1000 * NOISE))

    def _once_ns(self, shape: Shape, tables: CostTables) -> float:
        """Least messages of a micro-batch between nodes, there and back."""
        widest_span, times = 1, []
        groups = zip(tables.instance.cluster.groups, tables.shape.degrees, strict=True)
        for x, (group, degrees) in enumerate(groups):
            span = ceil_div(shape.dp * degrees.width, group.gpus_per_node)
            flows, link = shape.dp // span, group.inter_node
            times.append(outside_ns(tables, x, flows, link, tables.tensors[0], degrees.tp))
            widest_span = max(widest_span, span)
        borders = ceil_div(sum(shape.nodes_used), widest_span) - 1
        return 2.0 * borders * min(times)


def _with_even(gpus: Numbers, evenly: float, far: float) -> Iterator[Numbers]:
    """Weights of places, none negative: those by GPUs, with even ones, or less these up to far."""
    least = float(gpus.min())
    most = far if least >= evenly else min(far, least / (evenly - least))
    for part in (0, 0.5, -most):
        yield np.maximum((1 - part) * gpus + part * evenly, 0.0)
