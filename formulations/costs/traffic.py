"""What crosses every link in one step of a plan: bytes, and the seconds that they take.

Messages and rings are those whose times `transfers` and `placement` work out, all-reduces of tensor
groups those of `compute`. A link is busy for as long as its bytes take at its bandwidth, those of
rings between nodes at the efficiency of the network. Start-ups are not counted, and it does not
matter what is hidden behind compute. What GPUs exchange that share sequences or experts is not told
apart from their passes, and is left out.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise, permutations
from typing import Literal, NamedTuple

import numpy as np

from formulations.costs.collectives import ALL_REDUCE, HALF, ring_share
from formulations.costs.placement import Placer, SyncPhase
from formulations.costs.plan_costs import plan_tables
from formulations.costs.sharding import epilogue_factors, tied_lanes
from formulations.costs.stage_places import StagePlacer
from formulations.costs.tables import CostTables
from formulations.costs.transfers import ZoneTerms, message_bytes, neighbours
from formulations.instance import Instance
from formulations.instance.search import Overlap
from formulations.plan import Plan

Kind = Literal["transfers", "tensor", "sync", "embedding", "gather"]


class Link(NamedTuple):
    """One way of a link: of a node, of each GPU of a stage inside one, or from zone to zone."""

    way: Literal["out", "in", "inside", "zone"]
    place: int  #: node, or zone
    to: int | None = None  #: zone
    stage: int | None = None  #: inside a node, as `replica`
    replica: int | None = None


class Flow(NamedTuple):
    """What a stage sends to another one, or what goes round among its GPUs, over one link."""

    kind: Kind
    stage: int
    to_stage: int
    link: Link
    to_node: int | None  #: None: a ring over several nodes


class Load(NamedTuple):
    """What crosses in a step, and how long the link is busy with it."""

    size_bytes: float = 0.0
    busy_s: float = 0.0

    def more(self, size_bytes: float, busy_s: float) -> "Load":
        """With so much besides."""
        return Load(self.size_bytes + size_bytes, self.busy_s + busy_s)


class Seat(NamedTuple):
    """Where a stage of a replica runs; column: of the cost tables."""

    stage: int
    replica: int
    node: int
    column: int

    @property
    def inside(self) -> Link:
        """Its links inside the node."""
        return Link("inside", self.node, None, self.stage, self.replica)


Seats = Sequence[Sequence[Seat]]  #: by replica, by virtual stage
Crossing = Iterator[tuple[Flow, float, float]]  #: bytes, and the bytes per second at which they go


def traffic(instance: Instance, plan: Plan) -> dict[Flow, Load]:
    """All flows of a step that have bytes."""
    tables, columns = plan_tables(instance, plan)
    seats = [
        [Seat(s % plan.config.pp, r, stage.group.node, columns[r][s]) for s, stage in stages]
        for r, replica in enumerate(plan.replicas)
        for stages in [enumerate(replica.stages)]
    ]
    loads: dict[Flow, Load] = {}
    parts = (part(tables, plan, seats) for part in (_messages, _all_reduces, _rings))
    for flow, size_bytes, bytes_per_s in chain.from_iterable(parts):
        if size_bytes:
            loads[flow] = loads.get(flow, Load()).more(size_bytes, size_bytes / bytes_per_s)
    return loads


def _messages(tables: CostTables, plan: Plan, seats: Seats) -> Crossing:
    """Activations and their gradients between stages, gradients of tied embeddings."""
    config, tied_bytes = tables.config, tables.embedding_bytes
    for replica, at in zip(plan.replicas, seats, strict=True):
        for pair, stage in zip(pairwise(at), replica.stages, strict=False):
            tensors = tables.tensors[tables.message_kind[stage.layers[1]]]
            widest = config.widest_tp
            if plan.config.per_stage:
                widest = max(config.degrees[end.column].tp for end in pair)
            for ends in permutations(pair):
                sizes = [tensors * tables.send_bytes[ends[0].column]]
                sizes += [message_bytes(tables, end.column, tensors, widest) for end in ends]
                step_sizes = [replica.micro_batches * size_bytes for size_bytes in sizes]
                yield from _crossing(tables, "transfers", ends, step_sizes)
        for ends in permutations((at[0], at[plan.config.pp - 1])) if tables.tied else ():
            sizes = [tied_lanes(config, end.column) * tied_bytes[end.column] for end in ends]
            yield from _crossing(tables, "embedding", ends, [tied_bytes[ends[0].column], *sizes])


def _crossing(
    tables: CostTables, kind: Kind, ends: Sequence[Seat], sizes: Sequence[float]
) -> Crossing:
    """From one seat to another; sizes: of each GPU inside a node, out of a node, into a node."""
    cluster, (sender, to), (each, out, into) = tables.instance.cluster, ends, sizes
    group, to_group = (cluster.groups[end.column] for end in ends)
    links = [
        (Link("out", sender.node), out, group.inter_node.bandwidth_bytes_per_s),
        (Link("in", to.node), into, to_group.inter_node.bandwidth_bytes_per_s),
    ]
    if sender.node == to.node:
        links = [(sender.inside, each, group.intra_node.bandwidth_bytes_per_s)]
    if group.zone != to_group.zone:
        zones = (cluster.zone_of_group[end.column] for end in ends)
        speed = cluster.link_between(group.zone, to_group.zone).bandwidth_bytes_per_s
        links.append((Link("zone", *zones), out, speed))
    for link, size_bytes, speed in links:
        yield Flow(kind, sender.stage, to.stage, link, to.node), size_bytes, speed


def _all_reduces(tables: CostTables, plan: Plan, seats: Seats) -> Crossing:
    """Those of tensor groups, or what sequence parallelism has in their place."""
    instance, config = tables.instance, tables.config
    workload = instance.workload.whole_experts if config.etp else instance.workload
    for replica, at in zip(plan.replicas, seats, strict=True):
        for stage, seat in zip(replica.stages, at, strict=True):
            degrees = config.degrees[seat.column]
            share = degrees.sequences(config.micro_batch) / degrees.cp
            each = ring_share(ALL_REDUCE, degrees.tp) * share * workload.boundary_bytes
            # All-reduces of a micro-batch in both passes, and once more where it is recomputed: per
            # operator what is reduce-scattered is kept
            layers = workload.layers[slice(*stage.layers)]
            blocks = [layer for layer in layers if layer.is_block][: stage.recomputed.blocks]
            per_op = 0.5 if instance.splits_sequence(degrees.tp) else 1.0
            again = {"full": 1.0, "per_op": per_op}.get(stage.recomputed.way, 0.0)
            number = again * sum(layer.forward_all_reduces for layer in blocks)
            number += sum(
                layer.forward_all_reduces + layer.backward_all_reduces for layer in layers
            )
            link = instance.cluster.groups[seat.column].tensor_link(degrees.tp)
            flow = Flow("tensor", seat.stage, seat.stage, seat.inside, seat.node)
            yield flow, replica.micro_batches * number * each, link.bandwidth_bytes_per_s


def _rings(tables: CostTables, plan: Plan, seats: Seats) -> Crossing:
    """Reductions of gradients and gathers of parameters: inside nodes, between them and zones."""
    cluster, config = tables.instance.cluster, plan.config
    placer, by_stage, zones = Placer(tables), StagePlacer(tables), ZoneTerms(tables)
    # By stage and node its seats; the slot with which every node begins
    spans: dict[int, dict[int, list[Seat]]] = defaultdict(lambda: defaultdict(list))
    starts = dict[int, int]()
    for seat in sorted(chain.from_iterable(at[: config.pp] for at in seats)):
        spans[seat.stage][seat.node].append(seat)
        starts.setdefault(seat.node, seat.stage * config.dp + seat.replica)
    largest = max(replica.micro_batches for replica in plan.replicas)
    for kind, repeats, phase in _phases(tables, placer, largest):
        for k, nodes in spans.items():
            chunks = (np.arange(*chunk.layers) for chunk in plan.replicas[0].stages[k :: config.pp])
            lane = repeats * phase.size_bytes[np.concatenate([*chunks])].sum(axis=0)  # [J] bytes
            visited = phase.ring_nodes(len(nodes))
            far, efficiency = ring_share(phase.factor, visited), phase.efficiency(visited)
            for node, on_node in nodes.items():
                j = on_node[0].column
                terms = by_stage.terms(j, k) if config.per_stage else placer.terms(j, starts[node])
                rings = phase.rings(terms)
                if near := ring_share(1, rings.ranks[k]):
                    each, speed = phase.factor * near * lane[j], near / rings.inside[k].s_per_byte
                    for seat in on_node:
                        yield Flow(kind, k, k, seat.inside, node), each, speed
                if k in rings.outside:
                    speed = cluster.groups[j].inter_node.bandwidth_bytes_per_s
                    lanes = rings.outside[k].s_per_byte * speed / len(rings.outside)
                    for link in (Link("out", node), Link("in", node)):
                        yield (
                            Flow(kind, k, k, link, None),
                            lanes * far * lane[j],
                            speed * efficiency,
                        )
            places = [zones.zone_of_group[on_node[0].column] for on_node in nodes.values()]
            for pair in () if phase.across else neighbours(places):
                rate, speed = zones.ring_rate(pair, 1), zones.link(pair).bandwidth_bytes_per_s
                size_bytes = rate.s_per_byte * speed * far * lane[rate.group]
                for y, z in permutations(pair):
                    yield Flow(kind, k, k, Link("zone", y, z), None), size_bytes, speed * efficiency


def _phases(
    tables: CostTables, placer: Placer, micro_batches: int
) -> Iterator[tuple[Kind, int, SyncPhase]]:
    """Collectives of a step and how often each runs, with what is hidden of it."""
    config = tables.config
    often = micro_batches if config.splits.gradients else 1
    factor, _ = epilogue_factors(config, Overlap())
    yield "sync", often, replace(placer.sync, factor=factor or HALF)
    if placer.across is not None:
        yield "sync", often, replace(placer.across, factor=ALL_REDUCE)
    if placer.gather is not None:
        yield "gather", 1, placer.gather
    if config.splits.parameters:  # before the forward pass of every layer, and before its backward
        gather = replace(placer.sync, factor=HALF, size_bytes=tables.parameter_bytes)
        yield "gather", 2 * micro_batches, gather
