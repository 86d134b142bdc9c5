"""Chains of layers on nodes of one GPU, with times that are easy to work out by hand."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Cluster, Instance, Link, SearchSpace, ZoneLink
from formulations.instance.machines import ZonePair
from formulations.plan import Degrees
from tests.small_instances import gpu, instance_of, layer, nodes_of, plain_config, workload

#: Forward + backward of one GFLOP at 2 TFLOP/s, half of it reached: 1 ms + 2 ms.
SLOW = ("slow", 2.0, 8.0)
FAST = ("fast", 4.0, 8.0)


def chain_instance(gflops: list[int], nodes: list[tuple[str, float, float]]) -> Instance:
    """Blocks of these GFLOPs between an idle embedding and head; one node of one GPU per entry.

    Every layer has 10^7 parameters and 8 * 10^6 bytes of activations.
    """
    kinds = [("embedding", 0), *(("block", work) for work in gflops), ("head", 0)]
    layers = [layer(kind, work, 10**7, 8 * 10**6) for kind, work in kinds]
    link = Link(bandwidth_bytes_per_s=1e9, latency_s=0)
    groups = tuple(
        nodes_of(gpu(name, tflops, memory_gib), name=f"{name}{i}", intra_node=link, inter_node=link)
        for i, (name, tflops, memory_gib) in enumerate(nodes)
    )
    return instance_of("chain", workload(layers, 4, 1000, tied=False), groups)


def chain_tables(instance: Instance) -> CostTables:
    """Tables of a pipeline over all nodes, one GPU a stage."""
    nodes = len(instance.cluster.groups)
    return build_tables(instance, plain_config((1,) * nodes, pp=nodes))


def chain_of(kinds: str, pp: int, embedding_only: bool = False) -> CostTables:
    """Tables of pp single-GPU nodes; `kinds` has e, b, h for embedding, block, head."""
    names = {"e": "embedding", "b": "block", "h": "head"}
    layers = [layer(names[kind], 10 + n, 10**6, 0) for n, kind in enumerate(kinds)]
    group = nodes_of(gpu("one", 100, 80), name="one", nodes=pp)
    work = workload(layers, 4, 1000, tied=False)
    search = SearchSpace(embedding_only_stages=embedding_only)
    instance = instance_of("chain", work, [group], search=search)
    return build_tables(instance, plain_config((pp,), pp=pp))


def all_splits(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    for inner in combinations(range(1, layers), stages - 1):
        yield (0, *inner, layers)


INSIDE = Link(bandwidth_bytes_per_s=1e10, latency_s=1e-6)
OUTSIDE = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-5)
BETWEEN_ZONES = ZoneLink(bandwidth_bytes_per_s=5e8, latency_s=1e-3)


def equal_nodes(
    nodes: int,
    gpus: int,
    dp: int,
    pp: int,
    tied: bool = False,
    zones: str = "",
    cp: int = 1,
    own: Mapping[str, ZoneLink] = MappingProxyType({}),
) -> CostTables:
    """Messages of 1 MB; 10 MB of gradients per layer; efficiency 0.5 from two nodes on.

    `zones`: one letter per node; the nodes are then groups of their own. `own`: links of pairs.
    """
    chain = [layer(kind, 1, 0, 0) for kind in ("embedding", "block", "block", "head")]
    node = nodes_of(
        gpu("one", 100, 80), gpus_per_node=gpus, nodes=nodes, intra_node=INSIDE, inter_node=OUTSIDE
    )
    groups = tuple(node.but(name=f"n{i}", nodes=1, zone=zone) for i, zone in enumerate(zones))
    instance = Instance(
        name="equal",
        source="test",
        workload=workload(chain, 4, 10**6, tied),
        cluster=Cluster(
            groups=groups or (node,),
            zone_link=BETWEEN_ZONES if len(set(zones)) > 1 else None,
            zone_links=tuple(ZonePair(zones=(p[0], p[1]), link=link) for p, link in own.items()),
            network_efficiency=((1, 1.0), (2, 0.5)),
        ),
        search=SearchSpace(embedding_only_stages=True),
    )
    nodes_used = (1,) * nodes if zones else (nodes,)
    degrees = (Degrees(tp=1, cp=cp),) * len(nodes_used)
    tables = build_tables(instance, plain_config(nodes_used, degrees=degrees, dp=dp, pp=pp))
    size = tables.gradient_bytes * 0 + 10**7
    return replace(tables, gradient_bytes=size, parameter_bytes=size // 2)
