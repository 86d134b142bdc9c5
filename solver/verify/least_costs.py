"""What communication and optimizer cost at least, in whatever order the nodes stand.

Every figure here is one of `solver.verify.recount`, with the unknown
node replaced by the best one used and the unknown number of flows or nodes by its least value.
Each is proved at its function. Rounded up where the real cost is, after a margin for float noise.

Links between zones are left out, which keeps every figure a lower bound: a transfer, a collective
or an all-reduce takes as long as the slowest of its links, and here one may be missing.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.instance import Instance
from formulations.plan import Shape
from solver.verify.any_order import AnyOrder
from solver.verify.expert_rings import rings_of_experts_ns
from solver.verify.least_rings import at_least_ns, least_collective_ns
from solver.verify.link_times import inside_s, outside_s, pair_s
from solver.verify.volumes import (
    collective_factors,
    message_bytes,
    message_lanes,
    num_lanes,
    shards,
    tied_bytes,
    touched_bytes,
)

Array = NDArray[np.int64]


@dataclass(frozen=True)
class LeastCosts:
    """Lower bounds for the stages of any replica of a shape."""

    instance: Instance
    shape: Shape

    @cached_property
    def order(self) -> AnyOrder:
        """Where slots may lie."""
        return AnyOrder(self.instance, self.shape)

    def send_ns(self) -> int:
        """All pp - 1 transfers of one micro-batch through one replica, one way.

        Proof: a node with v stages of the replica has at most v - 1 transfers inside, so all nodes
        together at most sum (visits - 1). The others cross the border of a node, `flows` at a time.
        """
        boundaries = self.shape.pp - 1
        visits = zip(self.order.counts, self.order.visits, strict=True)
        inside = min(boundaries, sum(n * (most - 1) for n, most in visits))
        within, without = float("inf"), float("inf")
        for j, g in zip(self.order.used, self.order.groups, strict=True):
            size, own = message_bytes(self.instance, self.shape, j), self.shape.degrees[j]
            flows = message_lanes(self.instance, self.shape, j) * self.order.flows
            within = min(within, inside_s(g, size))
            without = min(without, outside_s(self.instance, own.tp, g, g.inter_node, flows, size))
        crossing = int(at_least_ns(without))
        easiest = min(crossing, int(at_least_ns(within)))
        return (boundaries - inside) * crossing + inside * easiest

    def embedding_ns(self) -> int:
        """All-reduce of tied embeddings.

        Proof: the two slots of a replica are (pp - 1) dp apart, so on two nodes unless one has
        more slots than that; then `flows` replicas at least cross its border together.
        """
        sizes = [tied_bytes(self.instance, self.shape, j) for j in self.order.used]
        if not any(sizes):
            return 0
        known = list(zip(self.order.used, self.order.groups, sizes, strict=True))
        degrees, flows = self.shape.degrees, self.order.flows
        ways = [(g.inter_node, degrees[j].width * flows, size) for j, g, size in known]
        apart = (self.shape.pp - 1) * self.shape.dp
        ways += [
            (g.intra_node, 1, size)
            for (_, g, size), c in zip(known, self.order.slots, strict=True)
            if c > apart
        ]
        return min(int(at_least_ns(pair_s(*way))) for way in ways)

    def tail_ns(self) -> tuple[Array, int]:
        """[U, used groups] per layer of a run, and once: what follows the last backward of a stage.

        Gradient sync, optimizer (of a replica on that group; the slowest counts), gather: one
        after the other. On the first stage the tied embeddings come between.
        """
        workload, order = self.instance.workload, self.order
        parameters, experts = self._parameters()
        reduces, gathers = collective_factors(self.instance, self.shape)
        sizes = workload.gradient_bytes * parameters
        layers, start = least_collective_ns(order, reduces, sizes)
        if gathers:
            sizes = workload.parameter_bytes * parameters
            gather, gather_start = least_collective_ns(order, gathers, sizes)
            layers, start = layers + gather, start + gather_start
        layers = layers + self._expert_rings_ns(experts)
        return layers[:, None] + self._optimizer_ns(parameters, experts), start

    def _parameters(self) -> tuple[Array, Array]:
        """[U, used groups] per GPU: all but those of experts that GPUs share, and these."""
        runs, shape = self.instance.workload.layer_runs, self.shape
        known = [(shape.degrees[j].tp, num_lanes(shape, j)) for j in self.order.used]
        apart = shape.ep > 1 or shape.etp is not None
        counts = [
            [
                (
                    run.layer.dense_per_gpu(tp, shape.pp),
                    run.layer.experts_per_gpu(lanes, shape.ep),
                )
                for tp, lanes in known
            ]
            for run in runs
        ]
        parameters, experts = np.moveaxis(np.array(counts, dtype=np.int64), -1, 0)
        return (parameters, experts) if apart else (parameters + experts, 0 * experts)

    def _optimizer_ns(self, parameters: Array, experts: Array) -> Array:
        """[U, used groups] of so many parameters."""
        speeds = [group.gpu.memory_bandwidth_bytes_per_s for group in self.order.groups]
        columns = zip(self.order.used, parameters.T, experts.T, strict=True)
        held = np.stack([shards(self.shape, 1, *own) for own in columns], axis=1)
        return at_least_ns(touched_bytes(self.instance.workload) * held / np.array(speeds))

    def _expert_rings_ns(self, experts: Array) -> Array:
        """[U] both collectives of experts that GPUs share, which no order changes."""
        workload, found = self.instance.workload, np.zeros(len(experts), dtype=np.int64)
        counts = np.zeros((len(experts), len(self.shape.degrees)), dtype=np.int64)
        counts[:, self.order.used] = experts
        factors = collective_factors(self.instance, self.shape)
        sizes = workload.gradient_bytes, workload.parameter_bytes
        for factor, size in zip(factors, sizes, strict=True):
            found = found + rings_of_experts_ns(self.instance, self.shape, factor, size * counts)
        return found
