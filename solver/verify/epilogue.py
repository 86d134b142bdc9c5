"""What follows the last backward of a stage: by the nodes that it stands on, and at least on any.

At least: every figure is one of `formulations.costs`, with the unknown node replaced by the best
one used and the unknown number of nodes by its least value. Rounded up where the real cost is,
after a margin for float noise. Links between zones are left out, which keeps every figure a lower
bound: a collective takes as long as the slowest of its links, and here one may be missing.

Slots are in node order: a node of group j covers c_j of them in a row, stage k of replica r has
slot k dp + r.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import ArrayLike

from formulations.costs.intervals import Array, interval_sums
from formulations.costs.memory import layer_parameters
from formulations.costs.placement import Placer
from formulations.costs.sharding import epilogue_factors, expert_rings_ns
from formulations.costs.tables import CostTables, optimizer_ns
from formulations.costs.transfers import neighbours
from formulations.instance import Instance, NodeGroup
from formulations.plan import Configuration
from formulations.units import NANOSECONDS_PER_SECOND, ceil_div
from solver.verify.findings import NOISE

#: Gradient sync and gather of a stage by layer [L], each with its start.
Rings = tuple[Array, int, Array, int]


class Epilogues:
    """Rows of [n, n] ns from the last backward of a stage to its end.

    Gradient sync, tied embeddings as far as its nodes decide it, slowest optimizer, gather.
    `syncs` and `embeddings` have the first two of each row of `all_ns`.
    """

    def __init__(self, tables: CostTables) -> None:
        self.tables, self.placer = tables, Placer(tables)
        self.all_ns: list[Array] = []
        self.syncs: list[Array] = []
        self.embeddings: list[int] = []
        self._rows: dict[tuple[object, ...], int] = {}

    def row(self, k: int, nodes: Sequence[tuple[int, int]]) -> int:
        """The row of stage k on nodes, each by its group and its first slot.

        Of rings between zones only the stage's own are counted, see `orders`.
        """
        terms = [self.placer.terms(j, start) for j, start in nodes]
        tied = self.tables.tied and k in (0, self.tables.config.pp - 1)
        embedding = max(node.embedding_ns for node in terms) if tied else 0
        groups, zones = [j for j, _ in nodes], self.placer.zones
        pairs = neighbours([zones.zone_of_group[j] for j in groups])
        between = zones.ring(dict.fromkeys(pairs, 1)) if pairs else None
        return self.row_of_rings(groups, embedding, self.placer.stage(k, terms, groups, between))

    def row_of_rings(self, groups: Sequence[int], embedding: int, rings: Rings) -> int:
        """The row of a stage with these rings on nodes of these groups."""
        sync, sync_start, gather, gather_start = rings
        starts = sync_start, gather_start, embedding
        key = (frozenset(groups), sync.tobytes(), gather.tobytes(), *starts)
        if key not in self._rows:
            sync_ns = interval_sums(sync) + sync_start
            gather_ns = interval_sums(gather) + gather_start
            optimizer = [interval_sums(self.tables.optimizer_ns[:, j]) for j in set(groups)]
            all_ns = sync_ns + embedding + np.max(optimizer, axis=0) + gather_ns
            self._rows[key] = self.add(all_ns, sync_ns, embedding)
        return self._rows[key]

    def add(self, all_ns: Array, sync_ns: Array, embedding: int) -> int:
        """The number of a row more."""
        self.all_ns.append(all_ns)
        self.syncs.append(sync_ns)
        self.embeddings.append(embedding)
        return len(self.all_ns) - 1

    def waits_ns(self, rows: Array, other_rows: Array) -> Array:
        """[M] what one of the outer stages with these rows waits at least for the other's link.

        Both reduce tied embeddings together, as fast as the slower one. other_rows: [N].
        """
        embeddings = np.array(self.embeddings)
        return np.asarray(np.maximum(embeddings[other_rows].min() - embeddings[rows], 0))


def at_least_ns(seconds: ArrayLike) -> Array:
    """Nanoseconds rounded up, after taking off twice the noise that rounding up forgives."""
    exact = np.asarray(seconds, dtype=np.float64) * NANOSECONDS_PER_SECOND
    return np.asarray(np.ceil(exact * (1 - 2 * NOISE)).astype(np.int64))


@dataclass(frozen=True)
class LeastCosts:
    """Lower bounds for the stages of any replica of a configuration; U runs of equal layers."""

    instance: Instance
    config: Configuration

    @cached_property
    def used(self) -> tuple[int, ...]:
        """Node groups of the nodes used."""
        return tuple(self.config.groups_used)

    @cached_property
    def groups(self) -> tuple[NodeGroup, ...]:
        """The same, as records."""
        return tuple(self.instance.cluster.groups[j] for j in self.used)

    def spans(self) -> range:
        """Numbers of nodes that a shard group may lie on: a stage, where it is one.

        Proof: it is g slots in a row, and borders of nodes and of groups lie at multiples of q =
        gcd(g, all c_j). On N nodes it has largest c_j of them at most per node. One of q slots is
        on one node. Else all its nodes but the first and the last are whole, c_j slots each, and
        these two have q at least: (N - 2) least c_j + 2 q <= g. A single one is on all nodes used.
        """
        g, nodes = self.config.shard_replicas, sum(self.config.nodes_used)
        widths = (self.config.degrees[j].width for j in self.used)
        pairs = zip(self.groups, widths, strict=True)
        slots = [group.gpus_per_node // width for group, width in pairs]
        q = gcd(g, *slots)
        if self.config.slots == g:
            return range(nodes, nodes + 1)
        if g == q:
            return range(1, 2)
        fewest, widest = ceil_div(g, max(slots)), 2 + (g - 2 * q) // min(slots)
        return range(fewest, max(fewest, min(widest, nodes)) + 1)

    def tail_ns(self) -> tuple[Array, int]:
        """[U, used groups] per layer of a run, and once: what follows the last backward of a stage.

        Gradient sync, optimizer (of a replica on that group; the slowest counts), gather: one
        after the other. Rings of experts that GPUs share take the same time in any order.
        """
        workload, config = self.instance.workload, self.config
        counts = [layer_parameters(workload, config, j) for j in range(len(config.degrees))]
        parameters, experts = np.array(counts, dtype=np.int64).transpose(1, 2, 0)  # [U, J] each
        layers, start = np.zeros(len(parameters), dtype=np.int64), 0
        factors = epilogue_factors(config, self.instance.search.overlap)
        widths = workload.gradient_bytes, workload.parameter_bytes
        for factor, width in zip(factors, widths, strict=True):
            if factor:
                each, once = self._collective_ns(factor, width * parameters[:, self.used])
                layers, start = layers + each, start + once
            layers = layers + expert_rings_ns(self.instance, config, factor, width * experts)
        columns = [
            optimizer_ns(self.instance, config, j, parameters[:, j], experts[:, j])
            for j in self.used
        ]
        return layers[:, None] + np.stack(columns, axis=1), start

    def _collective_ns(self, factor: float, sizes_bytes: Array) -> tuple[Array, int]:
        """[U] ring collective of any stage, and its start; sizes_bytes: [U, used groups].

        Of a shard group; what several all-reduce besides is left out. For each number N of nodes
        that it may lie on; the least over N counts, layer by layer. One node holds ceil(g / N)
        slots or more, which tp rings join inside. If N > 1, as many cross each border at least, and
        one of the N nodes' links is no faster than the N-th fastest of all. Where groups differ in
        their degrees, buffers are as small as on any of them, lanes as few, and a slot has as few
        parts.
        """
        degrees = [self.config.degrees[j] for j in self.used]
        copies = min(slot.copies for slot in degrees)
        smallest = sizes_bytes.min(axis=1)
        crossing = (sizes_bytes * [slot.tp for slot in degrees]).min(axis=1)
        inner = max(
            group.intra_node.of_rings(min(slot.tp, group.gpus_per_machine)).bandwidth_bytes_per_s
            for group, slot in zip(self.groups, degrees, strict=True)
        )
        outer = sorted(
            (
                group.inter_node.bandwidth_bytes_per_s
                for j, group in zip(self.used, self.groups, strict=True)
                for _ in range(self.config.nodes_used[j])
            ),
            reverse=True,
        )
        inner_s = min(group.intra_node.latency_s for group in self.groups)
        outer_s = min(group.inter_node.latency_s for group in self.groups)
        layers, starts = [], []
        for nodes in self.spans():
            ranks = ceil_div(self.config.shard_replicas, nodes) * copies
            efficiency = self.instance.cluster.efficiency(nodes)
            between = factor * (nodes - 1) / nodes / outer[nodes - 1] / efficiency
            inside = factor * (ranks - 1) / ranks / inner
            layers.append(at_least_ns(smallest * inside) + at_least_ns(crossing * between))
            delays = factor * inner_s * (ranks - 1), factor * outer_s * (nodes - 1)
            starts.append(sum(map(int, at_least_ns(delays))))
        return np.min(layers, axis=0), min(starts)
