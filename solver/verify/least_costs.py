"""What communication and optimizer cost at least, in whatever order the nodes stand.

Slots are in node order: a node of group j covers c_j of them in a row, stage k of
replica r has slot k dp + r. Every figure here is one of `solver.verify.recount`, with the unknown
node replaced by the best one used and the unknown number of flows or nodes by its least value.
Each is proved at its function. Rounded up where the real cost is, after a margin for float noise.

Links between zones are left out, which keeps every figure a lower bound: a transfer, a collective
or an all-reduce takes as long as the slowest of its links, and here one may be missing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.instance import Instance, NodeGroup
from formulations.plan import Shape
from formulations.units import NANOSECONDS_PER_SECOND, ceil_div
from solver.verify.findings import NOISE
from solver.verify.link_times import inside_s, outside_s, pair_s
from solver.verify.volumes import (
    collective_factors,
    message_bytes,
    message_lanes,
    num_holders,
    num_slots,
    tied_bytes,
    touched_bytes,
)

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
        return tuple(num_slots(self.instance, self.shape, j) for j in self.used)

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
        within, without = float("inf"), float("inf")
        for j, g in zip(self.used, self.groups, strict=True):
            size, own = message_bytes(self.instance, self.shape, j), self.shape.degrees[j]
            flows = message_lanes(self.instance, self.shape, j) * self.flows
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
        sizes = [tied_bytes(self.instance, self.shape, j) for j in self.used]
        if not any(sizes):
            return 0
        known = list(zip(self.used, self.groups, sizes, strict=True))
        degrees = self.shape.degrees
        ways = [(g.inter_node, degrees[j].tp * self.flows, size) for j, g, size in known]
        apart = (self.shape.pp - 1) * self.shape.dp
        ways += [
            (g.intra_node, 1, size)
            for (_, g, size), c in zip(known, self.slots, strict=True)
            if c > apart
        ]
        return min(int(at_least_ns(pair_s(*way))) for way in ways)

    def spans(self) -> range:
        """Numbers of nodes that one stage may lie on.

        Proof: a stage is dp slots in a row, and borders lie at multiples of q, see `flows`. On N
        nodes it has largest c_j of them at most per node. A stage of q slots is on one node. Else
        all its nodes but the first and the last are whole, c_j slots each, and these two have q at
        least: (N - 2) least c_j + 2 q <= dp. A single stage is on all nodes used.
        """
        dp, q = self.shape.dp, self.flows
        if self.shape.pp == 1:
            return range(sum(self.counts), sum(self.counts) + 1)
        if dp == q:
            return range(1, 2)
        least = ceil_div(dp, max(self.slots))
        most = 2 + (dp - 2 * q) // min(self.slots)
        return range(least, max(least, min(most, sum(self.counts))) + 1)

    def _ranked(self, values: Iterable[float]) -> list[float]:
        """One value per node used, ascending; values: one per group used."""
        nodes = zip(self.counts, values, strict=True)
        return sorted(value for count, value in nodes for _ in range(count))

    @property
    def _least_tp(self) -> int:
        return min(self.shape.degrees[j].tp for j in self.used)

    def _collective_ns(self, factor: float, sizes_bytes: Array) -> tuple[Array, int]:
        """[U, groups used] ring collective of a stage with a node of the group, and its start.

        sizes_bytes: [U, groups used].

        Proof, for each N of `spans`; the least over N counts, layer by layer. One node holds
        ceil(dp / N) slots or more. N - 2 nodes, or all if every c_j is q, are whole, so their rings
        join c_j slots each; one of them is no faster than the (N - 2)-th fastest such ring of all
        nodes, nor one of the N nodes' links than the N-th fastest. If N > 1, tp rings cross each
        border at least. With a node of a group they cross that one's too, and N - 1 others hold
        what it leaves of the stage. Where groups differ in their degrees, buffers are as small as
        on any of them, lanes as few, and a slot has as few parts.
        """
        dp, tp, groups = self.shape.dp, self._least_tp, self.groups
        degrees = [self.shape.degrees[j] for j in self.used]
        fewest = min(own.parts for own in degrees)
        ranks = [c * own.parts for c, own in zip(self.slots, degrees, strict=True)]
        whole_s = [
            (c - 1) / c / g.intra_node.bandwidth_bytes_per_s
            for g, c in zip(groups, ranks, strict=True)
        ]
        rings_s = [0.0, *self._ranked(whole_s)]
        own_s = [1 / g.inter_node.bandwidth_bytes_per_s for g in groups]
        links_s = [0.0, *self._ranked(own_s)]
        delays_s = [0.0, *self._ranked(g.inter_node.latency_s for g in groups)]
        inner = max(g.intra_node.bandwidth_bytes_per_s for g in groups)
        inner_s = min(g.intra_node.latency_s for g in groups)
        aligned = self.flows == max(self.slots)
        inside_s, outside_s, lacking, starts_ns = [], [], [], []
        for nodes in self.spans():
            members = ceil_div(dp, nodes) * fewest
            whole = nodes if aligned else max(nodes - 2, 0)
            efficiency = self.instance.cluster.efficiency(nodes)
            inside_s.append(factor * max((members - 1) / members / inner, rings_s[whole]))
            share = tp * factor * (nodes - 1) / nodes / efficiency
            outside_s.append([share * max(links_s[nodes], own) for own in own_s])
            others = [ceil_div(max(dp - c, 0), max(self.slots)) for c in self.slots]
            lacking.append([nodes < 1 + count for count in others])
            start_ns = at_least_ns(factor * inner_s * (members - 1))
            starts_ns.append(start_ns + at_least_ns(factor * delays_s[nodes] * (nodes - 1)))
        lanes = np.array([own.tp for own in degrees])
        least = sizes_bytes.min(axis=1)[:, None, None].astype(np.float64)
        crossing = ((sizes_bytes * lanes).min(axis=1) / tp)[:, None, None]
        inside = at_least_ns(least * np.array(inside_s)[:, None])
        layers = inside + at_least_ns(crossing * np.array(outside_s))
        layers = np.where(np.array(lacking), np.iinfo(np.int64).max, layers).min(axis=1)
        return layers, int(min(starts_ns))

    def tail_ns(self) -> tuple[Array, int]:
        """[U, used groups] per layer of a run, and once: what follows the last backward of a stage.

        Gradient sync, optimizer (of a replica on that group; the slowest counts), gather: one
        after the other. On the first stage the tied embeddings come between.
        """
        workload = self.instance.workload
        shards = np.array([num_holders(self.shape, 1, j) for j in self.used])
        reduces, gathers = collective_factors(self.instance, self.shape)
        counts = [
            [
                run.layer.parameters_per_gpu(self.shape.degrees[j].tp, self.shape.pp)
                for j in self.used
            ]
            for run in workload.layer_runs
        ]
        parameters = np.array(counts, dtype=np.int64)
        layers, start = self._collective_ns(reduces, workload.gradient_bytes * parameters)
        if gathers:
            gather, gather_start = self._collective_ns(
                gathers, workload.parameter_bytes * parameters
            )
            layers, start = layers + gather, start + gather_start
        touched = touched_bytes(workload) * -(-parameters // shards)
        speeds = [group.gpu.memory_bandwidth_bytes_per_s for group in self.groups]
        optimizer = at_least_ns(touched / np.array(speeds))
        return layers + optimizer, start
