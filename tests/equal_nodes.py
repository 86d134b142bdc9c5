"""Tables with round figures of a few equal nodes, alike or in zones."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Cluster, Instance, Link, SearchSpace, ZoneLink
from formulations.instance.machines import ZonePair
from formulations.instance.search import ZeroStage
from tests.small_instances import gpu, layer, nodes_of, plain_config, workload

INSIDE = Link(bandwidth_bytes_per_s=1e10, latency_s=1e-6)
OUTSIDE = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-5)
BETWEEN_ZONES = ZoneLink(bandwidth_bytes_per_s=5e8, latency_s=1e-3)


def _cluster(nodes: int, gpus: int, zones: str, own: Mapping[str, ZoneLink]) -> Cluster:
    node = nodes_of(
        gpu("one", 100, 80), gpus_per_node=gpus, nodes=nodes, intra_node=INSIDE, inter_node=OUTSIDE
    )
    groups = tuple(node.but(name=f"n{i}", nodes=1, zone=zone) for i, zone in enumerate(zones))
    return Cluster(
        groups=groups or (node,),
        zone_link=BETWEEN_ZONES if len(set(zones)) > 1 else None,
        zone_links=tuple(ZonePair(zones=(p[0], p[1]), link=link) for p, link in own.items()),
        network_efficiency=((1, 1.0), (2, 0.5)),
    )


def equal_nodes(
    nodes: int,
    gpus: int,
    tp: int,
    dp: int,
    pp: int,
    zero: ZeroStage = 0,
    tied: bool = False,
    zones: str = "",
    scatter_gather: bool = False,
    cp: int = 1,
    own: Mapping[str, ZoneLink] = MappingProxyType({}),
) -> CostTables:
    """Messages of 1 MB; 10 MB of gradients per layer; efficiency 0.5 from two nodes on.

    `zones`: one letter per node; the nodes are then groups of their own. `own`: links of pairs.
    """
    chain = [layer(kind, 1, 0, 0) for kind in ("embedding", "block", "block", "head")]
    instance = Instance(
        name="equal",
        source="test",
        workload=workload(chain, 4, 10**6, tied),
        cluster=_cluster(nodes, gpus, zones, own),
        search=SearchSpace(embedding_only_stages=True, scatter_gather=scatter_gather),
    )
    config = plain_config((1,) * nodes if zones else (nodes,), tp=tp, dp=dp, pp=pp, zero=zero)
    degrees = tuple(own.but(cp=cp) for own in config.degrees)
    config = config.but(degrees=degrees)
    tables = build_tables(instance, config)
    size = tables.gradient_bytes * 0 + 10**7
    return replace(tables, gradient_bytes=size, gather_bytes=size // 2 * (zero in (1, 2)))
