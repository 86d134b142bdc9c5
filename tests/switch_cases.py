"""Tiny layouts and machines for switches."""

import random

from bench.switching import in_order
from formulations.instance import Cluster, Link, NodeGroup, Workload
from formulations.instance.cluster import ZoneLink
from formulations.switching.seats import Layout, Seat
from tests.small_instances import gpu, layer, workload


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
    return NodeGroup(
        name=name,
        gpu=gpu(name, 312, 80),
        gpus_per_node=gpus,
        nodes=nodes,
        price_usd_per_hour=1,
        intra_node=Link(bandwidth_bytes_per_s=inside, latency_s=0),
        inter_node=Link(bandwidth_bytes_per_s=between, latency_s=0),
        zone=zone,
    )


def cluster(*groups: NodeGroup, between_zones: float | None = None) -> Cluster:
    """Machines, and the link between zones where they stand in several."""
    link = None
    if between_zones is not None:
        link = ZoneLink(bandwidth_bytes_per_s=between_zones, latency_s=0)
    return Cluster(groups=groups, zone_link=link)


def tiny_model(seed: int) -> Workload:
    """Three to five layers, tied or not."""
    rng = random.Random(seed)
    kinds = ["embedding", *["block"] * rng.randint(1, 3), "head"]
    chain = [layer(kind, 1, rng.randint(1, 9) * 10**6, 10**6) for kind in kinds]
    return workload(chain, 4, 10**6, rng.random() < 0.5)


def tiny_cluster(seed: int) -> Cluster:
    """Two or three nodes of two GPUs, links of all kinds, sometimes two zones."""
    rng = random.Random(seed)
    zones = rng.random() < 0.4
    groups = [
        machines(
            nodes,
            2,
            rng.choice([1e9, 4e9, 2e10]),
            rng.choice([1e9, 3e9, 1e10]),
            name=name,
            zone=name if zones else None,
        )
        for name, nodes in (("a", rng.randint(1, 2)), ("b", 1))
    ]
    return cluster(*groups, between_zones=5e8 if zones else None)


def tiny_layout(seed: int, gpus: int, layers: int) -> Layout:
    """Degrees that use some of the GPUs, in any order."""
    rng = random.Random(seed)
    known = [
        (dp, tp, pp)
        for dp in (1, 2, 3, 4)
        for tp in (1, 2)
        for pp in range(1, min(3, layers - 1))
        if dp * tp * pp <= gpus
    ]
    own = in_order(rng.choice(known), rng.choice([0, 1, 3]), layers=layers)
    places = rng.sample(range(gpus), gpus)
    return Layout(
        tuple(
            Seat(one.layers, one.tp, tuple(places[gpu] for gpu in one.gpus)) for one in own.seats
        ),
        own.zero,
    )
