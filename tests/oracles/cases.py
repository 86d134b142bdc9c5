"""Random small models, clusters and plans of every feature that traffic depends on."""

import random
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args

from formulations.costs.plan_costs import plan_tables
from formulations.costs.stage_places import stage_tables
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Decisions, even_shares
from formulations.instance import Cluster, GpuType, Instance, Link, SearchSpace, ZoneLink
from formulations.instance.search import Overlap, ScheduleName
from formulations.instance.sizes import MoeSizes, TransformerSizes
from formulations.instance.transformer import build_workload
from formulations.instance.workload import OptimizerState, Precision, Recompute
from formulations.plan import Configuration, Degrees, Plan, Recomputed
from formulations.space import configs
from formulations.space.slots import layouts, stage_places
from tests.brute_force import all_splits
from tests.oracles.layers import Model
from tests.small_instances import ROOMY, gpu, nodes_of

TOKENS = 64
GROUPED = 240  #: first seed with several shard groups
KEEPING = 360  #: first seed whose ZeRO 3 may keep gradients, and whose ZeRO 2 reduces slower
WAYS: tuple[Recompute, ...] = ("none", "selective", "full")


class Case(NamedTuple):
    """A plan of an instance, and its model."""

    instance: Instance
    plan: Plan
    model: Model


def cases(seed: int, number: int = 4) -> Iterator[Case]:
    rng = random.Random(seed)
    kind = rng.choice(["dense", "dense", "experts", "experts", "two stacks"])
    per = rng.choice(["uniform", "uniform", "per_group", "per_stage"])
    precision: Precision = rng.choice(["bf16", "bf16", "fp32", "fp8"])
    width, gradient = (4, 4) if precision == "fp32" else (2, rng.choice([2, 4]))
    sizes = _sizes(rng, kind)
    named: dict[str, Any] = {"name": f"traffic_{seed}", "source": "test"}
    formats: dict[str, Any] = {"precision": precision, "gradient_bytes": gradient}
    formats["flash_attention"] = precision != "fp32" and rng.random() < 0.7
    formats["optimizer_state"] = rng.choice(get_args(OptimizerState))
    groups = (1, 2, 4) if seed >= GROUPED else (1,)
    instance = Instance(
        **named,
        workload=build_workload(sizes, sequence_length=TOKENS, global_batch=8, **named, **formats),
        cluster=_cluster(rng, zones=per != "per_stage" and rng.random() < 0.3),
        search=_search(rng, kind, per, precision).but(optimizer_instances=groups),
        limits=ROOMY,
    )
    if seed >= KEEPING:
        rates = {"reduce_efficiency": ((1, 1.0), (2, 0.5), (4, 0.3))}
        instance = instance.but(cluster=rates, search={"sync_each_batch": (True, False)})
    if seed % 10 == 5:
        instance = instance.but(search={"microbatch_group": ("pp", 3, 4)})
    if seed % 3 and instance.workload.per_op_fault() is None:
        ways = ("none", "per_op", "full") if seed % 3 == 1 else ("per_op",)
        instance = instance.but(search={"recompute": ways, "recompute_per": "stage"})
    if seed % 7 in (1, 4, 6) and per != "per_stage" and kind != "experts":
        instance = instance.but(cluster=_joined(instance.cluster))
    model = Model(sizes, TOKENS, width, width, gradient)
    for config in _configs(rng, instance, number):
        plan = drawn_plan(rng, instance, config)
        if plan is not None:
            yield Case(instance, plan, model)


def _configs(rng: random.Random, instance: Instance, number: int) -> list[Configuration]:
    """Some configs of the instance, as unlike as can be: rare strategies as often as others."""
    alike: dict[tuple[object, ...], list[Configuration]] = {}
    for config in configs(instance):
        shards = config.zero, config.optimizer_instances, config.sync_each_batch
        strategies = *shards, config.ep, config.etp, config.cp, config.per_stage
        alike.setdefault((*strategies, config.chunking, config.pp > 1, config.dp > 1), []).append(
            config
        )
    chosen = rng.sample(list(alike), min(number, len(alike)))
    return [rng.choice(alike[key]) for key in chosen]


def _sizes(rng: random.Random, kind: str) -> TransformerSizes:
    fields: dict[str, Any] = {"hidden_size": rng.choice([32, 64]), "heads": 8}
    fields |= {"kv_heads": rng.choice([4, 8]), "layers": rng.randint(2, 4)}
    fields |= {"vocabulary_size": rng.choice([500, 1000, 1024])}
    fields |= {"norm": rng.choice(["layernorm", "rmsnorm"]), "ffn_size": rng.choice([64, 128])}
    flags = "tied_embeddings gated_ffn qkv_biases output_bias ffn_biases branch_norms final_norm"
    fields |= {flag: rng.random() < 0.5 for flag in flags.split()}
    if kind == "two stacks":
        fields |= {"decoder_layers": rng.randint(1, 2), "relative_position_buckets": 8}
        return TransformerSizes(**fields)
    fields |= {"qk_norms": rng.random() < 0.3, "learned_positions": rng.choice([None, TOKENS])}
    if kind == "experts":
        moe: dict[str, Any] = {"experts_per_token": rng.choice([1, 2])}
        moe["shared_experts"] = rng.choice([0, 0, 1, 2])
        moe["dense_first_layers"] = rng.choice([0, 1])
        fields["moe"] = MoeSizes(experts=4, ffn_size=32, **moe)
        fields["mtp_layers"] = rng.choice([0, 0, 1])
    return TransformerSizes(**fields)


def _link(rng: random.Random, bandwidth: float) -> Link:
    speed, latency = rng.uniform(bandwidth, 3 * bandwidth), rng.uniform(1e-6, 3e-5)
    return Link(bandwidth_bytes_per_s=speed, latency_s=latency, shared=int(speed) % 2 > 0)


def _gpu(rng: random.Random) -> GpuType:
    bf16 = 1e10 * rng.randint(1, 3)
    return gpu("g", 1, 80).but(
        peak_flops={"bf16": bf16, "fp32": bf16 / 2, "fp8": 2 * bf16},
        memory_bandwidth_bytes_per_s=rng.uniform(1e9, 1e10),
        efficiency_half_flops=rng.choice([0, 1e5]),
        attention_maximum=rng.choice([None, 0.4]),
        attention_half_flops=rng.choice([0, 2e5]),
        grouped_maximum=rng.choice([None, 0.3]),
        grouped_bandwidth=rng.choice([1, 0.8]),
        permute_bandwidth=rng.choice([1, 0.6]),
        memory_latency_s=rng.choice([None, 2e-6]),
        launch_overhead_s=rng.choice([0, 1e-6, 3e-5]),
    )


def _cluster(rng: random.Random, zones: bool) -> Cluster:
    number = rng.randint(1, 3)
    names = [rng.choice("wxyz") if zones else None for _ in range(number)]
    groups = [
        nodes_of(
            _gpu(rng),
            name=f"g{j}",
            gpus_per_node=rng.choice([1, 2, 4, 4, 8]),
            nodes=rng.randint(1, 2),
            intra_node=_link(rng, 1e9),
            inter_node=_link(rng, 1e8),
            zone=names[j] if len(set(names)) > 1 else None,
        )
        for j in range(number)
    ]
    link = ZoneLink(**_link(rng, 5e7).model_dump()) if len(set(names)) > 1 else None
    efficiency = ((1, 1.0), (2, 0.9), (3, 0.7))
    return Cluster(groups=tuple(groups), zone_link=link, network_efficiency=efficiency)


def _joined(cluster: Cluster) -> Cluster:
    """The cluster, whose nodes of several GPUs are two machines each."""
    groups = [group.but(machines=1 + (group.gpus_per_node > 1)) for group in cluster.groups]
    return cluster.with_groups(groups)


def _search(rng: random.Random, kind: str, per: Any, precision: Precision) -> SearchSpace:
    free = rng.random() < 0.3
    routes, by_stage = kind == "experts" and per != "per_stage", per == "per_stage"
    sequences = precision != "fp32" and not by_stage and kind != "two stacks"
    schedules: list[ScheduleName] = rng.sample(["1f1b", "gpipe", "interleaved", "zb-h1"], 2)
    fields: dict[str, Any] = {"degrees": per, "idle_nodes": False, "micro_batch": (1, 2, 4)}
    fields["zero"] = (0, 1, 2, 3) if per == "uniform" else (0, 1)
    fields["schedule"] = ("1f1b",) if by_stage else tuple(schedules)
    fields["recompute"] = ("none", "selective", "full") if free else (rng.choice(WAYS),)
    fields["recompute_per"] = "stage" if free else "plan"
    fields["sequence_parallel"] = kind == "experts" or rng.random() < 0.5
    fields["scatter_gather"] = rng.random() < 0.5
    fields["expert_parallel"] = (1, 2, 4) if routes else (1,)
    fields["expert_tensor_parallel"] = (1, "tp") if routes else ("tp",)
    fields["context_parallel"] = (1, 2) if sequences else (1,)
    fields["context_method"] = rng.choice([None, "ring", "all_to_all"])
    fields["embedding_only_stages"] = rng.random() < 0.5
    hidden: dict[str, Any] = {
        "tensor_parallel": rng.choice([0, 0.3]),
        "gradient_sync": rng.choice([0, 0.7]),
        "expert_parallel": rng.choice([0, 0.6]),
    }
    return SearchSpace(**fields, overlap=Overlap(**hidden, sharding=rng.choice([0, 0.4])))


def drawn_plan(rng: random.Random, instance: Instance, config: Configuration) -> Plan | None:
    if config.per_stage:
        tables = stage_tables(instance, config, stage_places(instance, config))
        assert tables.by_place is not None
        all_layouts = list(layouts(tables.by_place))
        order = rng.choice(all_layouts) if all_layouts else ()
    else:
        tables = build_tables(instance, config)
        nodes = [j for j, count in enumerate(config.nodes_used) for _ in range(count)]
        order = tuple(rng.sample(nodes, len(nodes)))
    splits = list(all_splits(tables))
    if not order or not splits:
        return None
    plan = Decisions(order, rng.choice(splits), even_shares(tables)).plan(tables)
    free = len(config.recompute) > 1 and config.vpp == 1
    return _recomputing(rng, instance, plan) if free else plan


def _recomputing(rng: random.Random, instance: Instance, plan: Plan) -> Plan:
    """The plan whose stages recompute each in a way of its own, some of their blocks."""
    blocks = [layer.is_block for layer in instance.workload.layers]
    chosen: dict[tuple[tuple[int, int], int, Degrees], Recomputed] = {}
    replicas = []
    for replica in plan.replicas:
        stages = []
        for stage in replica.stages:
            number, way = sum(blocks[slice(*stage.layers)]), rng.choice(plan.config.recompute)
            count = {"none": 0, "full": rng.randint(0, number)}.get(way, number)
            own = Recomputed(way=way if count else "none", blocks=count)
            place = instance.cluster.node_groups[stage.group.node]
            own = chosen.setdefault((stage.layers, place, stage.degrees), own)
            stages.append(stage.but(recomputed=own))
        replicas.append(replica.but(stages=tuple(stages)))
    return plan.but(replicas=tuple(replicas))


Drawn = tuple[str, Instance, Plan, CostTables]


@cache
def _of_seed(seed: int) -> list[Drawn]:
    plans = enumerate(cases(seed))
    return [(f"{seed}.{n}", c.instance, c.plan, plan_tables(*c[:2])[0]) for n, c in plans]


def drawn(*seeds: int) -> Iterator[Drawn]:
    """Name, instance, plan and tables of each plan of these seeds."""
    return (each for seed in seeds for each in _of_seed(seed))
