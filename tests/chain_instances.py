"""Chains of layers on nodes of one GPU, with times that are easy to work out by hand."""

from collections.abc import Iterator
from itertools import combinations

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance, Link, Profile, ProfileEntry, SearchSpace
from tests.small_instances import gpu, instance_of, layer, nodes_of, plain_config, workload

#: Forward + backward of one GFLOP at 2 TFLOP/s, half of it reached: 1 ms + 2 ms.
SLOW = ("slow", 2.0, 8.0)
FAST = ("fast", 4.0, 8.0)


def chain_instance(
    gflops: list[int], nodes: list[tuple[str, float, float]], search: SearchSpace | None = None
) -> Instance:
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
    work = workload(layers, 4, 1000, tied=False)
    return instance_of("chain", work, groups, search=search or SearchSpace())


def chain_tables(instance: Instance, dp: int = 1) -> CostTables:
    """Tables of a pipeline over all nodes, one GPU a stage and replica."""
    nodes = len(instance.cluster.groups)
    config = plain_config((1,) * nodes, dp=dp, pp=nodes // dp)
    return build_tables(instance, config)


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
    """Every way to cut `layers` layers into non-empty stages."""
    for inner in combinations(range(1, layers), stages - 1):
        yield (0, *inner, layers)


#: Optimizer of the first stage of a `measured_chain`: 10,000,007 parameters * (4 + 2 * 12 + 2)
#: bytes at 1e12 B/s, twice rounded up to 300,001 ns; and one transfer of 1 us each way.
AFTER_NS = 602_002


def measured_chain(second: tuple[str, float, float], message_bytes: int = 1000) -> CostTables:
    """Embedding, two blocks and head on a slow GPU and another, with measured times.

    Forward 1, 3, 3, 2 ms on the slow GPU, half of that on the fast; backward twice that. The one
    split with a block on both stages: 4 and 5 ms forward, 8 and 10 backward.
    """
    entries = tuple(
        ProfileEntry(kind=kind, gpu=name, tp=1, micro_batch=1, forward_s=s, backward_s=2 * s)
        for kind, slow in (("embedding", 1e-3), ("block", 3e-3), ("head", 2e-3))
        for name, s in (("slow", slow), ("fast", slow / 2))
    )
    profile = Profile(source="test", includes_tensor_parallel_traffic=True, entries=entries)
    chain = chain_instance([1, 1], [SLOW, second])
    return chain_tables(chain.but(profile=profile, workload={"boundary_bytes": message_bytes}))
