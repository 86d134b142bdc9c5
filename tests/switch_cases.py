"""Tiny layouts and machines for switches."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import permutations, product

from bench.switching import in_order
from formulations.instance import Cluster, Instance, Link, NodeGroup, Workload
from formulations.instance.machines import ZoneLink, ZonePair
from formulations.lengths.problem import Moves
from formulations.switching.shards import Layout
from formulations.switching.switch import Switch, switch_of
from solver.document import PlanDocument
from solver.lengths_document import SwitchDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.switching.quickest import switch_document
from tests.hand_made import result_of, uniform_plans
from tests.random_configs import zoned
from tests.small_instances import expert_instance, gpu, layer, nodes_of, random_instance, workload


def machines(
    nodes: int,
    gpus: int = 8,
    inside: float = 200e9,
    between: float = 200e9,
    *,
    name: str = "a800",
    zone: str | None = None,
) -> NodeGroup:
    """Equal nodes with links of so many bytes per second, no start-up."""
    return nodes_of(
        gpu(name, 312, 80),
        gpus_per_node=gpus,
        nodes=nodes,
        intra_node=Link(bandwidth_bytes_per_s=inside, latency_s=0),
        inter_node=Link(bandwidth_bytes_per_s=between, latency_s=0),
        zone=zone,
    )


def cluster(
    *groups: NodeGroup,
    between_zones: float | None = None,
    pairs: Mapping[tuple[str, str], float] = {},
) -> Cluster:
    """Machines, and the link between zones where they stand in several; some have their own."""

    def link(rate: float) -> ZoneLink:
        return ZoneLink(bandwidth_bytes_per_s=rate, latency_s=0)

    return Cluster(
        groups=groups,
        zone_link=None if between_zones is None else link(between_zones),
        zone_links=tuple(ZonePair(zones=zones, link=link(rate)) for zones, rate in pairs.items()),
    )


def tiny_model(seed: int) -> Workload:
    """Three to five layers, tied or not."""
    rng = random.Random(seed)
    kinds = ["embedding", *["block"] * rng.randint(1, 3), "head"]
    chain = [layer(kind, 1, rng.randint(1, 9) * 10**6, 10**6) for kind in kinds]
    return workload(chain, 4, 10**6, rng.random() < 0.5)


def _tiny_cluster(seed: int) -> Cluster:
    """Two or three nodes of two GPUs, links of all kinds, sometimes two zones; from 40 on three."""
    rng = random.Random(seed)
    if seed >= 40:
        rates = [1e9, 3e9, 1e10]
        single = [machines(1, 2, 4e9, rng.choice(rates), name=n, zone=n) for n in "abc"]
        pairs = {zones: rng.choice([2e8, 5e8, 4e9]) for zones in (("a", "b"), ("c", "b"))}
        return cluster(*single, between_zones=1e9, pairs=pairs)
    zones = rng.random() < 0.4
    groups = []
    for name, nodes in (("a", rng.randint(1, 2)), ("b", 1)):
        inside, between = rng.choice([1e9, 4e9, 2e10]), rng.choice([1e9, 3e9, 1e10])
        zone = name if zones else None
        groups.append(machines(nodes, 2, inside, between, name=name, zone=zone))
    return cluster(*groups, between_zones=5e8 if zones else None)


def _tiny_layout(seed: int, gpus: int, layers: int) -> Layout:
    """Degrees that use some of the GPUs, in any order."""
    rng = random.Random(seed)
    known = [
        (dp, tp, pp)
        for dp, tp, pp in product((1, 2, 3, 4), (1, 2), range(1, min(3, layers - 1)))
        if dp * tp * pp <= gpus
    ]
    own = in_order(rng.choice(known), rng.choice([0, 1, 3]), layers=layers)
    places = rng.sample(range(gpus), gpus)
    seats = (replace(seat, gpus=tuple(places[gpu] for gpu in seat.gpus)) for seat in own.seats)
    return replace(own, seats=tuple(seats))


def tiny_switch(seed: int) -> Switch:
    """From one tiny layout to another."""
    own, model = _tiny_cluster(seed), tiny_model(seed)
    gpus = sum(group.nodes * group.gpus_per_node for group in own.groups)
    before, after = (_tiny_layout(2 * seed + n, gpus, len(model.layers)) for n in range(2))
    return switch_of(own, model, before, after, ["parameters" if seed % 3 else "gradients"])


def plan_files(instance: Instance, most: int = 4) -> list[PlanDocument]:
    """Plan files of the first, the last and some other configurations of an instance."""
    plans = list({plan.config: plan for plan in uniform_plans(instance)}.values())
    step = max(1, len(plans) // most)
    return [build_document(result_of(instance, one), SolveOptions()) for one in plans[::step]]


def switches(instance: Instance, moves: Moves, most: int = 4) -> Iterator[SwitchDocument]:
    """Between all pairs of some plans."""
    for before, after in permutations(plan_files(instance, most), 2):
        yield switch_document(before, after, moves)


def zoned_instance(seed: int) -> Instance:
    """Nodes of several types in up to four zones, links of their own between some."""
    return zoned(random_instance(seed), 2 * seed + 1)


@cache
def example() -> SwitchDocument:
    """A switch with a class of several slices, sent by way of a GPU and directly."""
    plans = plan_files(expert_instance(4))
    return switch_document(plans[4], plans[2], "both")
