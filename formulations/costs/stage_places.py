"""Costs of stages that have degrees of their own, by place: see `Configuration.degrees`.

A place is a node group and the degrees of a stage on its nodes. All replicas of a stage are at one
place, side by side in a node or on whole nodes. So the links out of these carry the rings of no
other stage, and messages to the next stage are all alike. Tables by place are those of an instance
that lists a node group once for each.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from formulations.costs.placement import NodeTerms, PlacementCosts, Placer
from formulations.costs.sharding import tied_lanes
from formulations.costs.tables import Array, CostTables, build_tables
from formulations.costs.transfers import embedding_ns, inside_ns, outside_ns
from formulations.instance import Instance
from formulations.plan import ByPlace, Configuration, Place


def stage_tables(
    instance: Instance, config: Configuration, places: tuple[Place, ...]
) -> CostTables:
    """Tables by place [C] of a configuration in which every stage has its own degrees."""
    instance = instance.on(config.nodes_used)
    groups = tuple(instance.cluster.groups[j] for j, _ in places)
    degrees = tuple(degrees for _, degrees in places)
    nodes_used = tuple(config.nodes_used[j] for j, _ in places)
    # The instance and the configuration whose node groups are the places
    with_places = instance.but(cluster={"groups": groups})
    tables = build_tables(with_places, config.but(degrees=degrees, nodes_used=nodes_used))
    return replace(tables, by_place=ByPlace(instance, config, places))


def with_stages(tables: CostTables, pp: int) -> CostTables:
    """Tables by place of several stages for another number of these: nothing else differs."""
    by_place = tables.by_place
    assert by_place is not None  # as said
    of_stages = replace(by_place, config=by_place.config.but(pp=pp))
    return replace(tables, config=tables.config.but(pp=pp), by_place=of_stages)


def placement_of(tables: CostTables, order: Sequence[int]) -> PlacementCosts:
    """Costs of a node order; of a layout where tables are by place, see `stage_layouts`."""
    if tables.by_place is None:
        return Placer(tables).costs(order)
    return StagePlacer(tables).costs([n // 2 for n in order], [n % 2 > 0 for n in order])


class StagePlacer:
    """What lies between and behind stages, for tables by place."""

    def __init__(self, tables: CostTables) -> None:
        self.tables, self._placer = tables, Placer(tables)

    def num_nodes(self, place: int) -> int:
        """Nodes of a stage."""
        group = self.tables.instance.cluster.groups[place]
        gpus = self.tables.config.dp * self.tables.config.degrees[place].width
        return -(-gpus // group.gpus_per_node)

    def _slots(self, place: int) -> int:
        """Replicas on each of them."""
        return self.tables.config.dp // self.num_nodes(place)

    def terms(self, place: int, stage: int = 0) -> NodeTerms:
        """Rings of a stage, of this number, through each of its nodes."""
        group = self.tables.instance.cluster.groups[place]
        degrees = self.tables.config.degrees[place]
        ranks = {stage: self._slots(place) * degrees.copies}
        lanes = {stage: degrees.tp} if self.num_nodes(place) > 1 else {}
        # other stages on its node are taken to have as many rings each
        slots = {stage: group.gpus_per_node // degrees.width}
        rings = self._placer.rings_of(place, slots, ranks, lanes)
        return NodeTerms(send_ns={}, rings=rings, across=None, embedding_ns=0)

    def rings(self, place: int) -> tuple[Array, int, Array, int]:
        """Gradient sync and parameter gather of a stage: [L] and start-up, twice, ns."""
        number = self.num_nodes(place)
        return self._placer.stage(0, [self.terms(place)] * number, [place] * number)

    def send_ns(self, x: int, y: int, together: bool) -> tuple[int, ...]:
        """[K] messages between stages at two places, in the same node or between nodes.

        Where messages are whole, they cross as often as the wider tensor groups have GPUs.
        """
        tables, ends = self.tables, (x, y)
        if together:
            return tuple(max(inside_ns(tables, c, n) for c in ends) for n in tables.tensors)
        widest = max(tables.config.degrees[c].tp for c in ends)
        links = [(c, tables.instance.cluster.groups[c].inter_node) for c in ends]
        return tuple(
            max(outside_ns(tables, c, self._slots(c), link, n, widest) for c, link in links)
            for n in tables.tensors
        )

    def embedding_ns(self, place: int, together: bool) -> int:
        """All-reduce of tied embeddings, as the first or last stage decides it."""
        group = self.tables.instance.cluster.groups[place]
        if together:
            return embedding_ns(self.tables, place, 1, group.intra_node)
        lanes = tied_lanes(self.tables.config, place) * self._slots(place)
        return embedding_ns(self.tables, place, lanes, group.inter_node)

    def costs(self, places: Sequence[int], together: Sequence[bool]) -> PlacementCosts:
        """Costs of stages at places [p]; together [p]: in the node of the one before."""
        dp = self.tables.config.dp
        sync, sync_ns, gather, gather_ns = zip(*map(self.rings, places), strict=True)
        pairs = zip(places[:-1], places[1:], together[1:], strict=True)
        sends = np.array([self.send_ns(*pair) for pair in pairs], dtype=np.int64)
        kinds = sends.reshape(-1, len(self.tables.tensors)).T
        ends = {places[0], places[-1]}
        return PlacementCosts(
            group_of_slot=np.repeat(np.array(places, dtype=np.int64), dp),
            send_ns=np.repeat(kinds[:, :, None], dp, axis=2),
            sync_ns=np.stack(sync),
            sync_latency_ns=np.array(sync_ns, dtype=np.int64),
            gather_ns=np.stack(gather),
            gather_latency_ns=np.array(gather_ns, dtype=np.int64),
            embedding_ns=max(self.embedding_ns(x, all(together[1:])) for x in ends),
        )
