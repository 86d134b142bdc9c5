"""What follows the last backward of a stage, by the nodes that it stands on."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_sums
from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from formulations.costs.transfers import neighbours

Array = NDArray[np.int64]
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
        terms = [(j, self.placer.terms(j, start)) for j, start in nodes]
        tied = self.tables.tied and k in (0, self.tables.config.pp - 1)
        embedding = max(node.embedding_ns for _, node in terms) if tied else 0
        rates = sorted((j, node.inside[k], node.outside.get(k, (0.0, 0))) for j, node in terms)
        key = (*rates, embedding)
        if key not in self._rows:
            groups, zones = [j for j, _ in terms], self.placer.zones
            pairs = neighbours([zones.zone_of_group[j] for j in groups])
            between = zones.ring(dict.fromkeys(pairs, 1)) if pairs else None
            rings = self.placer.stage(k, [node for _, node in terms], groups, between)
            self._rows[key] = self._added(rings, groups, embedding)
        return self._rows[key]

    def row_of_rings(self, group: int, embedding: int, rings: Rings) -> int:
        """The row of a stage on nodes of one group, which decides the rings."""
        key = (group, embedding)
        if key not in self._rows:
            self._rows[key] = self._added(rings, [group], embedding)
        return self._rows[key]

    def row_of(self, group: int, all_ns: Array) -> int:
        """The row of a stage on a node of a group that waits for no tied embeddings."""
        if (group,) not in self._rows:
            self._rows[group,] = self._add(all_ns, all_ns, 0)
        return self._rows[group,]

    def _added(self, rings: Rings, groups: Sequence[int], embedding: int) -> int:
        sync, sync_start, gather, gather_start = rings
        sync_ns = interval_sums(sync) + sync_start
        gather_ns = interval_sums(gather) + gather_start
        optimizer = [interval_sums(self.tables.optimizer_ns[:, j]) for j in set(groups)]
        all_ns = sync_ns + embedding + np.max(optimizer, axis=0) + gather_ns
        return self._add(all_ns, sync_ns, embedding)

    def _add(self, all_ns: Array, sync_ns: Array, embedding: int) -> int:
        self.all_ns.append(all_ns)
        self.syncs.append(sync_ns)
        self.embeddings.append(embedding)
        return len(self.all_ns) - 1

    def waits_ns(self, rows: Array, other_rows: Array) -> Array:
        """[M] what one of the outer stages with these rows waits at least for the other's link.

        Both reduce tied embeddings together, as fast as the slower one. other_rows: [N].
        """
        embeddings = np.array(self.embeddings)
        waits: Array = np.maximum(embeddings[other_rows].min() - embeddings[rows], 0)
        return waits
