"""What communication and optimizer cost at least, in whatever order the nodes stand.

Slots are tensor groups in node order: a node of group j covers c_j of them in a row, stage k of
replica r has slot k dp + r. Every figure here is one of `solver.verify.recount`, with the unknown
node replaced by the best one used and the unknown number of flows or nodes by its least value.
Each is proved at its function. Rounded up where the real cost is, after a margin for float noise.

Links between zones are left out, which keeps every figure a lower bound: a transfer, a collective
or an all-reduce takes as long as the slowest of its links, and here one may be missing.
"""

from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.costs.collectives import ALL_REDUCE, HALF, ring_latency_s, ring_share
from formulations.costs.memory import layer_memory
from formulations.instance import Instance, NodeGroup
from formulations.plan import Shape
from formulations.units import NANOSECONDS_PER_SECOND, ceil_div
from solver.verify.findings import NOISE
from solver.verify.recount import message_bytes, tied_bytes, touched_bytes

Array = NDArray[np.int64]


def at_least_ns(seconds: ArrayLike) -> Array:
    """Nanoseconds rounded up, after taking off twice the noise that rounding up forgives."""
    exact = np.asarray(seconds, dtype=np.float64) * NANOSECONDS_PER_SECOND
    whole: Array = np.ceil(exact * (1 - 2 * NOISE)).astype(np.int64)
    return whole


@dataclass(frozen=True)
class LeastCosts:
    """Lower bounds for the stages of any replica of a shape."""

    instance: Instance
    shape: Shape

    @cached_property
    def used(self) -> tuple[int, ...]:
        """Node groups of the nodes used."""
        return tuple(j for j, n in enumerate(self.shape.nodes_used) if n)

    @cached_property
    def groups(self) -> tuple[NodeGroup, ...]:
        """The same, as records."""
        return tuple(self.instance.cluster.groups[j] for j in self.used)

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """Slots c_j on one node of each group used."""
        return tuple(group.gpus_per_node // self.shape.tp for group in self.groups)

    @cached_property
    def visits(self) -> tuple[int, ...]:
        """Per group used: most stages that one replica can have on one of its nodes.

        Proof: slots of one replica are dp apart, and a node has c_j in a row.
        """
        return tuple(ceil_div(count, self.shape.dp) for count in self.slots)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Nodes of each group used."""
        return tuple(self.shape.nodes_used[j] for j in self.used)

    @cached_property
    def flows(self) -> int:
        """Least number of replicas that cross a node's border together, at one stage boundary.

        Proof: borders of nodes and of stages lie at multiples of q = gcd(dp, all c_j). A shift by
        dp slots moves whole blocks of q slots; each block stays on one node.
        """
        return gcd(self.shape.dp, *self.slots)

    def send_ns(self) -> int:
        """All pp - 1 transfers of one micro-batch through one replica, one way.

        Proof: a node with v stages of the replica has at most v - 1 transfers inside, so all nodes
        together at most sum (visits - 1). The others cross the border of a node, `flows` at a time.
        """
        boundaries = self.shape.pp - 1
        visits = zip(self.counts, self.visits, strict=True)
        inside = min(boundaries, sum(n * (most - 1) for n, most in visits))
        size, tp = message_bytes(self.instance, self.shape), self.shape.tp
        within_s = [
            size / g.intra_node.bandwidth_bytes_per_s + g.intra_node.latency_s for g in self.groups
        ]
        gather = (tp - 1) * self.instance.search.scatter_gather
        outside_s = [
            tp * self.flows * size / g.inter_node.bandwidth_bytes_per_s
            + g.inter_node.latency_s
            + gather * within
            for g, within in zip(self.groups, within_s, strict=True)
        ]
        crossing = int(at_least_ns(min(outside_s)))
        easiest = min(crossing, int(at_least_ns(min(within_s))))
        return (boundaries - inside) * crossing + inside * easiest

    def embedding_ns(self) -> int:
        """All-reduce of tied embeddings.

        Proof: the two slots of a replica are (pp - 1) dp apart, so on two nodes unless one has
        more slots than that; then `flows` replicas at least cross its border together.
        """
        size = tied_bytes(self.instance, self.shape)
        if not size:
            return 0
        lanes = self.shape.tp * self.flows
        ways = [(g.inter_node, lanes) for g in self.groups]
        apart = (self.shape.pp - 1) * self.shape.dp
        ways += [
            (g.intra_node, 1) for g, c in zip(self.groups, self.slots, strict=True) if c > apart
        ]
        return min(
            int(
                at_least_ns(
                    flows * ring_share(ALL_REDUCE, 2) * size / link.bandwidth_bytes_per_s
                    + ring_latency_s(ALL_REDUCE, 2, link.latency_s)
                )
            )
            for link, flows in ways
        )

    def _collective_ns(self, factor: int, sizes_bytes: Array) -> tuple[Array, int]:
        """[L] ring collective over the dp replicas of one stage, and its start.

        Proof: a stage lies on N nodes, ceil(dp / largest c_j) <= N <= min(dp, nodes used). One of
        them holds ceil(dp / N) of its slots or more; if N > 1, tp rings cross each border at
        least. Links are no faster than the fastest used. The least over N, layer by layer.
        """
        dp, tp = self.shape.dp, self.shape.tp
        nodes = np.arange(ceil_div(dp, max(self.slots)), min(dp, sum(self.counts)) + 1)
        members = -(-dp // nodes)
        inner = max(g.intra_node.bandwidth_bytes_per_s for g in self.groups)
        outer = max(g.inter_node.bandwidth_bytes_per_s for g in self.groups)
        efficiency = np.array([self.instance.cluster.efficiency(int(n)) for n in nodes])
        inside = factor * (members - 1) / members / inner
        outside = tp * factor * (nodes - 1) / nodes / outer / efficiency
        sizes = sizes_bytes[:, None].astype(np.float64)
        layers = at_least_ns(sizes * inside) + at_least_ns(sizes * outside)
        inner_s = min(g.intra_node.latency_s for g in self.groups)
        outer_s = min(g.inter_node.latency_s for g in self.groups)
        inner_start: Array = at_least_ns(factor * inner_s * (members - 1))
        start: Array = inner_start + at_least_ns(factor * outer_s * (nodes - 1))
        return layers.min(axis=1), int(start.min())

    def tail_ns(self) -> tuple[Array, int]:
        """[L, used groups] and once: what follows the last backward of the first stage.

        Gradient sync, tied embeddings, optimizer (of a replica on that group; the slowest counts),
        gather: one after the other.
        """
        workload, shards = self.instance.workload, self.shape.dp if self.shape.zero else 1
        parameters = layer_memory(self.instance, self.shape).parameters
        factor = HALF if self.shape.zero else ALL_REDUCE
        layers, start = self._collective_ns(factor, workload.gradient_bytes * parameters)
        if self.shape.zero:
            gather, gather_start = self._collective_ns(HALF, workload.parameter_bytes * parameters)
            layers, start = layers + gather, start + gather_start
        touched = touched_bytes(workload) * -(-parameters // shards)
        speeds = [group.gpu.memory_bandwidth_bytes_per_s for group in self.groups]
        optimizer = at_least_ns(touched[:, None] / np.array(speeds))
        return layers[:, None] + optimizer, start + self.embedding_ns()
