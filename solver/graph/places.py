"""What a stage costs wherever it may stand in a template: the tables that template searches read.

A place is a number of GPUs on one node of a node group; the GPUs of a stage are one tensor-parallel
group. Times follow `formulations.costs`. A message to g GPUs of another node crosses the links of
both nodes g times, as every GPU needs it whole; with scatter and gather once, in parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from formulations.costs.intervals import interval_sums
from formulations.costs.stage_costs import NEVER
from formulations.costs.stage_places import StagePlacer
from formulations.costs.template_costs import between_ns, stage_tables, template_degrees, tied_ns
from formulations.costs.transfers import inside_ns
from formulations.fleet import Strategy
from formulations.instance import Instance, Link
from formulations.instance.search import ScheduleName
from formulations.node_sharing import NodeSplit, filled
from formulations.plan import ByPlace, Recomputed
from formulations.schedules.registry import in_flight
from solver.graph.problem import Array, Intervals, Mask


class StageMemory(Protocol):
    """What memory makes the stages at places recompute, by the micro-batches that they hold."""

    def extra(self, place: int, in_flight: int) -> Array:
        """[n, n] ns by which that lengthens backward passes; NEVER where layers may not stand."""

    def recomputed(self, place: int, in_flight: int, layers: tuple[int, int]) -> Recomputed:
        """What a stage of these layers recomputes."""


@dataclass(frozen=True)
class PlaceMemory:
    """Memory of the places [C] of an instance: their intervals and node groups."""

    places: Sequence[tuple[Intervals, int]]

    def extra(self, place: int, in_flight: int) -> Array:
        """See `StageMemory`."""
        intervals, group = self.places[place]
        extra = intervals.stages.extra_of(group, ((in_flight, 0),))
        return np.where(intervals.allowed, extra, NEVER)

    def recomputed(self, place: int, in_flight: int, layers: tuple[int, int]) -> Recomputed:
        """See `StageMemory`."""
        intervals, group = self.places[place]
        return intervals.stages.recomputed_of(group, ((in_flight, 0),), layers)


@dataclass(frozen=True)
class Places:
    """C places, J node groups; n = L + 1. Layers [a, b) of a stage cost what stands at [a, b]; ns.

    nodes, node_gpus: [J] nodes there are, and GPUs of each that stages fill. group, gpus: [C].
    forward, backward: [C, n, n] per micro-batch, with as little recomputed as may be; `memory` says
    what else. sync, finish: [C, n, n] after the last backward. send, send_back: [2, C, C, K] to the
    stage at [., x, y] from the one before, x, and back, by kind of message; first inside a node,
    then between two. message_kind: [n] of that at a layer boundary. embedding: [2, C] all-reduce of
    tied embeddings inside a node and between two.
    """

    split: NodeSplit
    nodes: tuple[int, ...]
    node_gpus: tuple[int, ...]
    group: tuple[int, ...]
    gpus: tuple[int, ...]
    forward: Array
    backward: Array
    sync: Array
    finish: Array
    memory: StageMemory
    send: Array
    send_back: Array
    message_kind: Array
    embedding: Array
    tied: bool = False
    blocking: bool = False
    schedule: ScheduleName = "1f1b"

    @property
    def num_layers(self) -> int:
        """Number of layers L."""
        return int(self.forward.shape[-1]) - 1

    def fits(self, place: int, in_flight: int) -> Mask:
        """[n, n] layers that may stand at a place and hold so many micro-batches."""
        return self.memory.extra(place, in_flight) < NEVER

    def held(self, num_stages: int, stage: int, micro_batches: int) -> int:
        """Micro-batches that a stage holds at once."""
        return in_flight(self.schedule, num_stages, stage, micro_batches)

    def of_group(self, j: int) -> dict[int, int]:
        """Number of GPUs -> place, for one node group."""
        return {g: c for c, g in enumerate(self.gpus) if self.group[c] == j}


@dataclass(frozen=True)
class PlaceCosts:
    """Places of a pipeline that is one stage alone, and of those of several stages."""

    alone: Places
    several: Places


def _places(
    instance: Instance, strategy: Strategy, split: NodeSplit, pp: int, across: Sequence[Link]
) -> Places:
    groups = instance.cluster.groups
    degrees = [template_degrees(instance, group, split) for group in groups]
    place_keys = [(j, g) for j, gpus in enumerate(degrees) for g in gpus]
    tables = {g: stage_tables(instance, strategy, g, pp) for _, g in place_keys}
    intervals = {g: Intervals(place_tables) for g, place_tables in tables.items()}

    def stacked(name: str) -> Array:
        return np.stack([getattr(intervals[g], name)[j] for j, g in place_keys])

    def sends(receiver: int) -> Array:
        """[2, C, C, 1] messages; `receiver` 1: to the stage at y, 0: to the one at x."""
        pairs = [[(x, y) for y in place_keys] for x in place_keys]
        own = {(j, g): inside_ns(tables[g], j, tables[g].tensors[-1]) for j, g in place_keys}
        within = [[own[p[receiver]] for p in row] for row in pairs]
        between = [
            [between_ns(tables[p[receiver][1]], p[0][0], p[1][0]) for p in row] for row in pairs
        ]
        return np.array([within, between], dtype=np.int64)[..., None]

    embedding = [tied_ns(tables[g], j, across) for j, g in place_keys]
    return Places(
        split=split,
        nodes=tuple(group.nodes for group in groups),
        node_gpus=tuple(
            filled(group.gpus_per_node, gpus, split)
            for group, gpus in zip(groups, degrees, strict=True)
        ),
        group=tuple(j for j, _ in place_keys),
        gpus=tuple(g for _, g in place_keys),
        forward=stacked("forward"),
        backward=stacked("backward"),
        sync=np.zeros_like(stacked("optimizer")),
        finish=stacked("optimizer"),
        memory=PlaceMemory([(intervals[g], j) for j, g in place_keys]),
        send=sends(1),
        send_back=sends(0),
        message_kind=np.zeros(len(instance.workload.layers) + 1, dtype=np.int64),
        embedding=np.array(embedding, dtype=np.int64).T,
        tied=any(place_tables.tied for place_tables in tables.values()),
        blocking=instance.search.blocking_sends,
        schedule=strategy.schedule,
    )


def place_costs(
    instance: Instance, strategy: Strategy, split: NodeSplit, across: Sequence[Link] = ()
) -> PlaceCosts:
    """Tables of one strategy, for templates in one zone, or with these links `across` several.

    Memory of a stage alone holds no buffers and no second embedding.
    """
    return PlaceCosts(*(_places(instance, strategy, split, pp, across) for pp in (1, 2)))


def places_of(intervals: Intervals, by_place: ByPlace) -> Places:
    """Tables by place as those that pipelines read."""
    tables, groups = intervals.tables, by_place.instance.cluster.groups
    placer, config, each = StagePlacer(tables), tables.config, range(len(by_place.places))
    send = [
        [[placer.send_ns(x, y, together) for y in each] for x in each] for together in (True, False)
    ]
    embedding = [[placer.embedding_ns(x, inside) for x in each] for inside in (True, False)]
    rings, finish = [placer.rings(x) for x in each], intervals.optimizer.copy()
    for ns, (_, _, gather, gather_latency) in zip(finish, rings, strict=True):
        ns += interval_sums(gather) + gather_latency
    return Places(
        split=NodeSplit.ANY,
        nodes=tuple(group.nodes for group in groups),
        node_gpus=tuple(group.gpus_per_node for group in groups),
        group=tuple(j for j, _ in by_place.places),
        gpus=tuple(config.dp * degrees.width for _, degrees in by_place.places),
        forward=intervals.forward,
        backward=intervals.backward,
        sync=np.stack([interval_sums(sync) + latency for sync, latency, _, _ in rings]),
        finish=finish,
        memory=PlaceMemory([(intervals, x) for x in each]),
        send=np.array(send, dtype=np.int64),
        send_back=np.array(send, dtype=np.int64),
        message_kind=tables.message_kind,
        embedding=np.array(embedding, dtype=np.int64),
        tied=tables.tied,
        blocking=tables.instance.search.blocking_sends,
        schedule=config.schedule,
    )
