"""Links between zones, as far as one stage and the one before decide what they carry."""

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np

from formulations.costs.placement import Placer
from formulations.costs.sharding import widest_group
from formulations.costs.tables import CostTables
from formulations.costs.transfers import RingRate
from formulations.instance import Instance
from formulations.plan import Configuration
from solver.verify.bounds import Prover


def passing(instance: Instance, before: Sequence[int], after: Sequence[int]) -> list[int]:
    """[R] of lanes on these groups: how many go from zone to zone as each does; 0 if it stays."""
    zone = [group.zone for group in instance.cluster.groups]
    moves = [(zone[i], zone[j]) for i, j in zip(before, after, strict=True)]
    lanes = Counter(moves)
    return [lanes[move] if move[0] != move[1] else 0 for move in moves]


def zone_slots(tables: CostTables) -> Counter[str | None]:
    """Slots of the nodes used in every zone."""
    slots = Counter[str | None]()
    groups = tables.instance.cluster.groups
    for j in tables.used:
        slots[groups[j].zone] += tables.config.nodes_used[j] * tables.slots_per_node[j]
    return slots


def keeps_stages_apart(prover: Prover, config: Configuration, below_ns: int) -> bool:
    """Whether no stage of any plan with a step below this lies in two zones.

    Then all replicas go from zone to zone together. One replica is on one node; else it takes too
    long, see `spanning_ns`.
    """
    if not prover.instance.cluster.links_among(config.groups_used):
        return False
    return config.dp == 1 or spanning_ns(prover, config) >= below_ns


def spanning_ns(prover: Prover, config: Configuration) -> int:
    """No plan with some stage in two zones has a shorter step, if there are two.

    Proof. The last backward of the stage on a replica comes after a forward of the whole chain by
    one micro-batch, each layer on some group used, whatever the schedule. Then follow its gradient
    sync and gather, one after the other. The stage has a layer, and N nodes, from 2 to min(dp, all
    nodes): its tp rings at least share a link between two zones used, so no collective has less
    time per byte than tp rings on that link, the widest, nor a shorter start than the latency of N
    on it. Of several layers each adds its own time; the least over layers, N and links is no more
    than any.
    """
    tables, cluster = prover.tables(config), prover.instance.cluster
    placer, widest = Placer(tables), widest_group(config)
    phases = [phase for phase in (placer.sync, placer.gather) if phase is not None]
    counts = range(2, min(config.dp, sum(config.nodes_used)) + 1)
    spans_ns = []
    for nodes, link in product(counts, cluster.links_among(tables.used)):
        rate = RingRate(config.widest_tp / link.bandwidth_bytes_per_s, widest)
        rings = (int(phase.outside_ns(rate, nodes).min()) for phase in phases)
        starts = (phase.latency_ns(0.0, nodes, link.latency_s) for phase in phases)
        spans_ns.append(sum(rings) + sum(starts))
    forward, _, _ = prover.stage_times(config)
    onward = np.diff(forward[tables.used, 0], axis=1).min(axis=0).sum()
    return int(onward) + min(spans_ns)
