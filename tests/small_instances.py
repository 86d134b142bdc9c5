"""Tiny instances in code: the playground of the property tests."""

import random
from collections.abc import Iterable
from typing import Any

from formulations.instance import (
    Cluster,
    GpuType,
    Instance,
    Layer,
    LayerRun,
    Limits,
    Link,
    NodeGroup,
    Objective,
    SearchSpace,
    Workload,
)
from formulations.instance.instance import Preemption
from formulations.instance.machines import Spot
from formulations.instance.search import Overlap
from formulations.instance.workload import OPTIMIZER_BYTES, OptimizerState, Recompute
from formulations.plan import Configuration, Degrees
from formulations.units import GIB

#: Of limits: the framework takes little of the memory.
ROOMY = Limits(framework_reserve_bytes=GIB // 8)
#: What every fourth random instance hides.
HIDDEN = Overlap(tensor_parallel=0.25, gradient_sync=0.5, sharding=0.75)


def gpu(name: str, tflops: float, memory_gib: float) -> GpuType:
    """A GPU whose kernels run at half its peak, without launch overhead."""
    return GpuType(
        name=name,
        source="test",
        peak_flops={"bf16": tflops * 1e12},
        memory_bytes=int(memory_gib * GIB),
        memory_bandwidth_bytes_per_s=1e12,
        link=Link(bandwidth_bytes_per_s=2e10, latency_s=1e-6),
        efficiency_maximum=0.5,
        efficiency_half_flops=0,
        launch_overhead_s=0,
        efficiency_source="test",
    )


def nodes_of(one: GpuType, **fields: Any) -> NodeGroup:
    """One node of one GPU for 1 USD/h, its link also between nodes, but for these fields."""
    usual: dict[str, Any] = {"name": one.name, "gpus_per_node": 1, "nodes": 1}
    usual |= {"price_usd_per_hour": 1, "intra_node": one.link, "inter_node": one.link}
    return NodeGroup(gpu=one, **(usual | fields))


def layer(kind: str, gflops: int, parameters: int, activation_bytes: int) -> Layer:
    """A layer whose parameters and activations are split over the tp ranks."""
    return Layer(
        kind=kind,
        is_block=kind == "block",
        sharded_parameters=parameters,
        replicated_parameters=7,
        forward_flops=gflops * 10**9,
        kernels=1,
        forward_all_reduces=1,
        backward_all_reduces=1,
        replicated_activation_bytes=activation_bytes // 4,
        sharded_activation_bytes=activation_bytes,
        input_bytes=activation_bytes // 8,
    )


def workload(layers: list[Layer], global_batch: int, boundary_bytes: int, tied: bool) -> Workload:
    """A chain of layers; the head holds a copy of the embedding if `tied`."""
    if tied:
        matrix = {"vocabulary_rows": 500, "vocabulary_columns": 2000}
        layers = [
            layers[0].model_copy(update=matrix),
            *layers[1:-1],
            layers[-1].model_copy(update=matrix | {"tied_copy": True}),
        ]
    return Workload(
        name="tiny",
        source="test",
        layer_runs=tuple(LayerRun(layer=one, count=1) for one in layers),
        parameters=1,
        sequence_length=128,
        global_batch=global_batch,
        hidden_size=256,
        kv_heads=12,
        boundary_bytes=boundary_bytes,
        tied_embeddings=tied,
        precision="bf16",
    )


def random_layers(rng: random.Random, kinds: Iterable[str]) -> list[Layer]:
    """Layers of these kinds, no two alike."""
    return [
        layer(k, rng.randint(5, 60), *(rng.randint(1, n) * 10**6 for n in (40, 60))) for k in kinds
    ]


def with_ends(blocks: int) -> list[str]:
    """Kinds of the layers of a model with so many blocks."""
    return ["embedding", *["block"] * blocks, "head"]


def instance_of(
    name: str, work: Workload, groups: Iterable[NodeGroup], *shared: tuple[int, float], **more: Any
) -> Instance:
    """Work on these nodes; `shared`: how well networks do from so many nodes on."""
    cluster = Cluster(groups=tuple(groups), network_efficiency=((1, 1.0), *shared))
    return Instance(name=name, source="test", workload=work, cluster=cluster, **more)


def with_groups(instance: Instance, **fields: Any) -> Instance:
    """The instance with these fields in all node groups; a list has one for each of them."""
    groups = tuple(
        group.but(**{name: v[j] if isinstance(v, list) else v for name, v in fields.items()})
        for j, group in enumerate(instance.cluster.groups)
    )
    return instance.but(cluster={"groups": groups})


def two_tensors(chain: list[Layer], seed: int) -> list[Layer]:
    """Every fourth chain sends twice as much behind the blocks of its second half, as T5 does."""
    if seed % 4 != 2:
        return chain
    middle = len(chain) // 2
    twice = [one.but(output_tensors=2) for one in chain[middle:-1]]
    return [*chain[:middle], *twice, chain[-1]]


def random_instance(seed: int) -> Instance:
    """Up to 6 layers and 3 nodes of 2 types, some too small for some splits."""
    rng = random.Random(seed)
    chain = random_layers(rng, with_ends(rng.randint(1, 4)))
    chain, tied = two_tensors(chain, seed), rng.random() < 0.5
    batch = rng.choice([2, 4, 6])
    types = [gpu("fast", 120, rng.choice([1.2, 2, 8])), gpu("slow", 60, rng.choice([1, 1.6, 8]))]
    groups = [
        nodes_of(
            one,
            gpus_per_node=rng.choice([1, 2]),
            nodes=rng.randint(1, 2) if one.name == "fast" else 1,
            price_usd_per_hour=rng.randint(1, 5),
            inter_node=Link(bandwidth_bytes_per_s=rng.choice([1e9, 5e9]), latency_s=1e-5),
        )
        for one in types[: rng.randint(1, 2)]
    ]
    return instance_of(
        f"tiny_{seed}",
        workload(chain, batch, rng.randint(1, 20) * 10**6, tied),
        groups,
        (2, 0.9),
        search=SearchSpace(
            micro_batch=(1, 2),
            micro_batches=rng.choice(["even", "uneven"]),
            blocking_sends=rng.random() < 0.2,
            embedding_only_stages=rng.random() < 0.5,
            schedule=(rng.choice(["1f1b", "1f1b", "gpipe"]),),
            overlap=HIDDEN if seed % 4 == 3 else Overlap(),
        ),
        limits=ROOMY,
    )


def plain_config(nodes_used: tuple[int, ...], *, tp: int = 1, **fields: Any) -> Configuration:
    """1F1B, micro-batches of one sequence, no recomputation, degrees of 1; but for these fields."""
    usual: dict[str, Any] = {"micro_batch": 1, "schedule": "1f1b", "recompute": ("none",)}
    usual |= {"degrees": (Degrees(tp=tp),) * len(nodes_used), "dp": 1, "pp": 1, "zero": 0}
    return Configuration(**(usual | fields), nodes_used=nodes_used)


STATES: tuple[OptimizerState, ...] = ("fp32", "bf16", "8bit")
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


def widened(seed: int) -> Instance:
    """`random_instance` with attention in its blocks, free recomputation, ZeRO 0 to 3.

    Sequence parallelism, scatter and gather and the precision of optimizer states go by the seed.
    """
    instance, rng = random_instance(seed), random.Random(seed)
    runs = []
    for run in instance.workload.layer_runs:
        layer = run.layer
        core = {
            "unweighted_flops": layer.forward_flops * rng.randint(0, 3) // 8,
            "core_kernels": 1,
            "core_bytes": layer.sharded_activation_bytes * rng.randint(1, 7) // 8,
            "unsplit_bytes": layer.replicated_activation_bytes * rng.randint(0, 1) // 2,
        }
        changed = layer.model_copy(update=core) if layer.is_block else layer
        runs.append(run.but(layer=changed))
    each, block = OPTIMIZER_BYTES[rng.choice(STATES)]
    workload = instance.workload.but(
        layer_runs=tuple(runs),
        gradient_bytes=rng.choice([2, 4]),
        optimizer_bytes=each,
        optimizer_block_bytes=block,
    )
    return instance.but(
        workload=workload,
        search={
            "recompute": RECOMPUTE,
            "zero": (0, 1, 2, 3),
            "sequence_parallel": rng.random() < 0.5,
            "scatter_gather": rng.random() < 0.5,
            "pipeline_parallel": (1, 2, 3),
        },
    )


def spot_instance(seed: int) -> Instance:
    """A random instance, small enough for brute force, with groups on demand, on spot, or either.

    Money per useful sequence is minimised.
    """
    instance, rng = (
        random_instance(seed).but(search={"pipeline_parallel": (1, 2, 3)}),
        random.Random(seed),
    )
    groups = []
    for group in instance.cluster.groups:
        spot = Spot(
            price_usd_per_hour=group.price_usd_per_hour * rng.uniform(0.2, 0.9),
            preemptions_per_hour=rng.choice([0.0, 1.0, 20.0]),
            only=rng.random() < 0.3,
        )
        own = {"spot": spot if rng.random() < 0.8 else None}
        groups.append(group.model_copy(update=own))
    cluster = instance.cluster.but(groups=tuple(groups))
    every_s = rng.choice([None, None, 60.0])
    preemption = Preemption(restart_s=30, checkpoint_s=2, checkpoint_every_s=every_s)
    update = {
        "cluster": cluster,
        "preemption": preemption,
        "objective": Objective(minimize="cost_per_useful_sequence"),
    }
    return instance.model_copy(update=update)


#: GPUs of a node of the first and of the second group.
NODES = ((2, 2), (4, 4), (4, 2), (2, 4), (1, 2))


def expert_instance(seed: int) -> Instance:
    """Some blocks with 4 experts, attention whose sequences may be shared, all of ZeRO."""
    instance, rng = random_instance(seed), random.Random(seed)
    workload = instance.workload
    runs = []
    for run in workload.layer_runs:
        one = run.layer
        if one.is_block and rng.random() < 0.8:
            experts = rng.randint(1, 60) * 10**6
            one = one.but(
                sharded_parameters=one.sharded_parameters + experts,
                expert_parameters=experts,
                expert_flops=one.forward_flops // 2,
                routed_bytes=rng.randint(1, 4) * 10**6,
                expert_all_reduces=seed % 2,
                key_value_bytes=rng.randint(1, 20) * 10**6,
                query_bytes=rng.randint(1, 20) * 10**6,
            )
        runs.append(LayerRun(layer=one, count=run.count))
    sizes = [*rng.choice(NODES)[: len(instance.cluster.groups)]]
    return with_groups(instance, gpus_per_node=sizes).but(
        workload=workload.but(layer_runs=tuple(runs), experts=4),
        search={
            "expert_parallel": (1, 2, 4),
            "expert_tensor_parallel": (1, "tp"),
            "context_parallel": (1, 2),
            "sequence_parallel": rng.random() < 0.7,
            "tensor_parallel": (1, 2),
            "micro_batch": (1,),
            "pipeline_parallel": (1, 2, 3),
            "zero": (0, 1, 2, 3),
        },
    )
