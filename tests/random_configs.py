"""Random configurations of tiny instances, and the cost tables of one of them."""

import random
from collections.abc import Iterable
from functools import cache
from itertools import combinations, pairwise

from formulations.costs.stage_costs import least_recomputed, memory_parts
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Cluster, Instance, LayerRun, Link, SearchSpace, Workload, ZoneLink
from formulations.instance.machines import ZonePair
from formulations.instance.search import ScheduleName
from formulations.plan import Configuration
from formulations.space import configs
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.search.driver import solve
from tests import brute_force
from tests.conftest import present
from tests.small_instances import (
    ROOMY,
    gpu,
    instance_of,
    nodes_of,
    random_instance,
    random_layers,
    two_tensors,
    with_ends,
    with_groups,
    workload,
)

#: Schedules that `random_tables` has only where they are asked for; None: 1F1B or GPipe.
WITH_NEW: tuple[ScheduleName | None, ...] = (None, "zb-h1", "interleaved")


def _between_nodes(rng: random.Random, *faster: float) -> Link:
    speed = rng.choice([1e9, 5e9, *faster])
    return Link(bandwidth_bytes_per_s=speed, latency_s=rng.choice([1e-5, 1e-4]))


def crowded_instance(seed: int) -> Instance:
    """Two types, three nodes of one to three GPUs, six layers, uneven shares: much to choose."""
    rng = random.Random(seed)
    chain = two_tensors(random_layers(rng, with_ends(4)), seed)
    types = [gpu("fast", 120, rng.choice([1.4, 8])), gpu("slow", 60, rng.choice([1.4, 8]))]
    speeds = [rng.choice([1e10, 4e10]) for _ in types]
    inside = [
        Link(bandwidth_bytes_per_s=speed, latency_s=1e-6, shared=(seed + j) % 2 > 0)
        for j, speed in enumerate(speeds)
    ]
    outside = [_between_nodes(rng) for _ in types]
    groups = tuple(
        nodes_of(
            types[j],
            gpus_per_node=rng.choice([1, 2, 2, 3]),
            nodes=2 - j,
            intra_node=inside[j],
            inter_node=outside[j],
        )
        for j in range(2)
    )
    return instance_of(
        f"crowded_{seed}",
        workload(chain, rng.choice([4, 6]), rng.randint(1, 20) * 10**6, seed % 3 == 0),
        groups,
        (2, 0.9),
        (3, 0.7),
        search=SearchSpace(
            micro_batch=(1,),
            micro_batches="uneven",
            idle_nodes=False,
            blocking_sends=rng.random() < 0.2,
            scatter_gather=rng.random() < 0.5,
            embedding_only_stages=rng.random() < 0.5,
            schedule=(rng.choice(["1f1b", "1f1b", "gpipe"]),),
        ),
        limits=ROOMY,
    )


def unlike_replicas(seed: int, single: bool = True) -> Instance:
    """Two replicas of two stages on two or three types: nodes of one GPU, or one node of two.

    Uneven shares. Memory is short in every third. Among those of single nodes every tenth has
    three replicas, every tenth four on nodes of two GPUs each.
    """
    rng = random.Random(seed)
    chain = random_layers(rng, with_ends(rng.randint(2, 4)))
    sizes = rng.choice([(2, 2), (3, 1), (1, 2, 1)] if single else [(1, 2), (1, 1, 1)])
    batch, dp, gpus = rng.randint(4, 9), 2, [1 if single else 2, 1, 1]
    if single and seed % 10 == 8:
        sizes, batch, dp, gpus = (2, 2), rng.randint(4, 6), 4, [2, 2]
    elif single and seed % 10 == 9:
        sizes, batch, dp = (4, 2), rng.randint(3, 5), 3
    groups = tuple(
        nodes_of(
            gpu(f"g{j}", rng.choice([40, 60, 90, 130]), 1.2 if seed % 3 == 0 else 8),
            gpus_per_node=gpus[j],
            nodes=count,
            intra_node=Link(bandwidth_bytes_per_s=4e10, latency_s=1e-6),
            inter_node=_between_nodes(rng),
        )
        for j, count in enumerate(sizes)
    )
    return instance_of(
        f"unlike_{seed}",
        workload(chain, batch, rng.randint(1, 20) * 10**6, seed % 2 == 0),
        groups,
        (2, 0.9),
        (4, 0.7),
        search=SearchSpace(
            tensor_parallel=(1,),
            micro_batch=(1,),
            micro_batches="uneven",
            idle_nodes=False,
            data_parallel=(dp,),
            blocking_sends=rng.random() < 0.2,
            embedding_only_stages=rng.random() < 0.5,
            schedule=(rng.choice(["1f1b", "1f1b", "gpipe"]),),
        ),
        limits=ROOMY,
    )


def zoned(instance: Instance, seed: int) -> Instance:
    """The instance with its nodes, one group each, in two to four zones behind slow links.

    Odd seeds give some pairs of zones a link of their own.
    """
    rng = random.Random(seed)
    names = "wxyz"[: rng.randint(2, 4)]
    nodes = [group for group in instance.cluster.groups for _ in range(group.nodes)]
    zones = ["w", *(rng.choice(names) for _ in nodes[1:])]
    zones[-1] = "x" if len(set(zones)) == 1 and len(nodes) > 1 else zones[-1]

    def link() -> ZoneLink:
        return ZoneLink(
            bandwidth_bytes_per_s=rng.choice([3e8, 2e9]), latency_s=rng.choice([1e-5, 1e-3])
        )

    default = link()
    pairs = list(combinations(sorted(set(zones)), 2)) if seed % 2 else []
    own = [pair for pair in pairs if rng.random() < 0.7]
    cluster = Cluster(
        groups=tuple(
            node.but(name=f"n{i}", nodes=1, zone=zone)
            for i, (node, zone) in enumerate(zip(nodes, zones, strict=True))
        ),
        zone_link=default if len(nodes) > 1 else None,
        zone_links=tuple(ZonePair(zones=pair, link=link()) for pair in own),
        network_efficiency=instance.cluster.network_efficiency,
    )
    return instance.but(cluster=cluster)


def wide_zones(seed: int) -> CostTables:
    """Tables of a random configuration of six nodes in up to four zones."""
    six = with_groups(crowded_instance(seed), nodes=3)
    wide = zoned(six.but(workload={"global_batch": 24}), seed)
    config = present(random_config(wide, seed, most_stages=6))
    return build_tables(wide, config)


def scheduled(instance: Instance, schedule: ScheduleName, seed: int) -> Instance:
    """The instance under one schedule; interleaved with blocks and micro-batches enough for it.

    Weight gradients take unlike shares of time and activations; every third recomputes.
    """
    rng = random.Random(seed)
    chain = [run.layer for run in instance.workload.layer_runs]
    update: dict[str, object] = {"schedule": (schedule,), "virtual_pipeline": (2, 3)}
    batch = instance.workload.global_batch
    if schedule == "interleaved":
        blocks, count = chain[1:-1], rng.choice([6, 6, 7])
        chain[1:-1] = [blocks[i * len(blocks) // count] for i in range(count)]
        update["micro_batches"] = "even"
        batch = rng.choice([4, 6, 12])
    if seed % 3 == 2:
        update["recompute"] = ("full",)
    runs = tuple(
        LayerRun(
            layer=one.but(
                forward_flops=one.forward_flops * rng.randint(3, 6) // 4,
                unweighted_flops=one.forward_flops * rng.randint(0, 2) // 4,
                released_sharded_bytes=one.sharded_activation_bytes * rng.randint(0, 3) // 4,
            ),
            count=1,
        )
        for one in chain
    )
    busy = instance.workload.but(layer_runs=runs, global_batch=batch)
    return instance.but(workload=busy, search=update)


def slower(instance: Instance, factor: int = 1000) -> Instance:
    """The instance with GPUs, their memory and links so many times slower: steps of minutes."""

    def link(one: Link) -> Link:
        return one.but(bandwidth_bytes_per_s=one.bandwidth_bytes_per_s / factor)

    groups = []
    for group in instance.cluster.groups:
        own = group.gpu
        peak = {precision: flops / factor for precision, flops in own.peak_flops.items()}
        memory = own.memory_bandwidth_bytes_per_s / factor
        own = own.but(peak_flops=peak, memory_bandwidth_bytes_per_s=memory)
        links = {"intra_node": link(group.intra_node), "inter_node": link(group.inter_node)}
        groups.append(group.but(gpu=own, **links))
    return instance.but(cluster={"groups": tuple(groups)})


def random_config(instance: Instance, seed: int, most_stages: int = 3) -> Configuration | None:
    """A configuration of the instance, with several stages and replicas if it has such; or None."""
    rng = random.Random(seed)
    known = [config for config in configs(instance) if config.pp <= most_stages]
    wide = [config for config in known if config.pp > 1 and config.dp > 1]
    deep = [config for config in known if config.pp > 1]
    return rng.choice(rng.choice([wide or deep or known, deep or known])) if known else None


@cache
def random_tables(
    seed: int, zones: bool = False, schedule: ScheduleName | None = None
) -> CostTables:
    """Tables of a random configuration of a random instance; `zoned` nodes, `scheduled`.

    Every third is `slower`.
    """
    for number in range(seed, seed + 50_000, 1000):
        instance = crowded_instance(number) if seed % 4 == 0 else random_instance(number)
        if zones:
            instance = zoned(instance, number)
        if schedule is not None:
            instance = scheduled(instance, schedule, number)
        if config := random_config(instance, seed):
            return build_tables(slower(instance) if seed % 3 == 2 else instance, config)
    raise AssertionError("fifty instances without a configuration")


@cache
def random_optimum_ns(
    seed: int, zones: bool = False, schedule: ScheduleName | None = None
) -> int | None:
    """Least step time of `random_tables`, by trying every plan; None if nothing fits."""
    return brute_force.optimum_ns(random_tables(seed, zones, schedule))


def extreme(instance: Instance, seed: int) -> Instance:
    """The instance with links from 10 MB/s to 100 GB/s, between zones down to 1 MB/s."""
    rng = random.Random(seed)

    def figures(slowest: int) -> tuple[float, float]:
        return 10.0 ** rng.randint(slowest, 11), 10.0 ** -rng.randint(2, 6)

    groups = tuple(
        group.but(inter_node=Link(bandwidth_bytes_per_s=speed, latency_s=latency))
        for group in instance.cluster.groups
        for speed, latency in [figures(7)]
    )
    changes: dict[str, object] = {"groups": groups}
    if instance.cluster.zone_link is not None:
        speed, latency = figures(6)
        changes["zone_link"] = ZoneLink(bandwidth_bytes_per_s=speed, latency_s=latency)
        changes["zone_links"] = tuple(
            ZonePair(
                zones=pair.zones, link=ZoneLink(bandwidth_bytes_per_s=speed, latency_s=latency)
            )
            for pair in instance.cluster.zone_links
            for speed, latency in [figures(6)]
        )
    return instance.but(cluster=changes)


@cache
def extreme_tables(seed: int) -> CostTables:
    """A random configuration over extreme links, two of three with zones."""
    for number in range(seed, seed + 10_000, 1000):
        instance = crowded_instance(number) if seed % 4 == 0 else random_instance(number)
        instance = zoned(instance, number) if seed % 3 else instance
        instance = extreme(instance, number)
        if config := random_config(instance, seed):
            return build_tables(instance, config)
    raise AssertionError("ten instances without a configuration")


@cache
def extreme_optimum_ns(seed: int) -> int | None:
    return brute_force.optimum_ns(extreme_tables(seed))


def with_cores(workload: Workload) -> Workload:
    """Blocks in which half of what is split over the GPUs is the attention's core."""
    runs = [
        run.but(
            layer={
                "core_bytes": run.layer.sharded_activation_bytes // 2,
                "core_kernels": run.layer.kernels // 2,
                "unweighted_flops": run.layer.forward_flops // 4,
            }
        )
        for run in workload.layer_runs
    ]
    return workload.but(layer_runs=tuple(runs))


def cramped_instance(seed: int, schedule: str = "1f1b") -> tuple[Instance, Configuration]:
    """A random instance with all ways to recompute, and a config for which memory is scarce."""
    for number in range(seed, seed + 50_000, 1000):
        instance = scheduled(random_instance(number), schedule, number)  # type: ignore[arg-type]
        instance = instance.but(
            search={"recompute": ("none", "selective", "full")},
            workload=with_cores(instance.workload),
        )
        if (config := random_config(instance, seed)) and config.pp > 1:
            return with_less_memory(instance, config, random.Random(seed)), config
    raise AssertionError("fifty instances without a configuration")


def with_less_memory(instance: Instance, config: Configuration, rng: random.Random) -> Instance:
    """Between what one split needs at most and at least, each group somewhere else."""
    tables = build_tables(instance, config)
    stages = list(pairwise(list(brute_force.all_splits(tables))[-1]))
    few, many = (1, 4) if config.vpp == 1 else (tables.num_micro_batches // config.dp,) * 2
    devices = [(d, stages[d :: config.pp]) for d in range(config.pp)]
    least = max(brute_force.least_bytes(tables, own, d, few) for d, own in devices)
    plain = [[least_recomputed(tables, chunk) for chunk in own] for _, own in devices]
    most = max(
        sum(memory_parts(tables, own, d, 0, many, ways))
        for (d, own), ways in zip(devices, plain, strict=True)
    )
    keep = 1 - instance.limits.memory_headroom
    sizes = [int(rng.uniform(least, most) / keep) + 1 for _ in instance.cluster.groups]
    return with_groups(instance, gpu=[{"memory_bytes": size} for size in sizes])


def one_degree(seed: int, schedule: str, **fields: object) -> Instance:
    """A cramped instance that leaves one pipeline degree, and its fields of `search` changed."""
    instance, config = cramped_instance(seed, schedule)
    degrees = {"pipeline_parallel": (config.pp,), "data_parallel": (config.dp,), "zero": (0,)}
    return instance.but(search=degrees | fields)


def recomputing(instances: Iterable[Instance]) -> PlanDocument:
    """The first optimum some of whose stages recompute."""
    for instance in instances:
        document = build_document(solve(instance), SolveOptions())
        stages = [stage for one in document.replicas for stage in one.stages]
        if any(stage.recomputed.blocks for stage in stages):
            return document
    raise AssertionError("no instance recomputes")


@cache
def cramped_tables(seed: int, schedule: str = "1f1b") -> CostTables:
    return build_tables(*cramped_instance(seed, schedule))
