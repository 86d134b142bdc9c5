"""Plan files small enough to change in every field, which together use all of an instance."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from formulations.instance import (
    Cluster,
    Instance,
    Layer,
    Limits,
    Link,
    NodeGroup,
    Objective,
    Profile,
    ProfileEntry,
    SearchSpace,
    ZoneLink,
)
from formulations.instance.machines import Spot
from formulations.instance.preemption import Preemption
from formulations.instance.search import Overlap
from formulations.units import GIB
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import SearchLog, Status, Termination
from tests.certified import certified, certified_document
from tests.small_instances import gpu, layer, nodes_of, workload


def instance(batch: int = 4, memory_gib: float = 8, **fields: Any) -> Instance:
    """Two nodes of two GPUs each, of different types; four layers with tied embeddings.

    Layers, GPUs and links all differ, and both nodes are used unless `search` says otherwise.
    """
    chain = [
        layer("embedding", 5, 3 * 10**6, 9 * 10**6),
        layer("block", 40, 20 * 10**6, 30 * 10**6),
        layer("block", 30, 25 * 10**6, 50 * 10**6),
        layer("head", 10, 5 * 10**6, 20 * 10**6),
    ]
    return Instance.model_validate(
        {
            "name": "case",
            "source": "test",
            "workload": workload(chain, batch, 5 * 10**6, tied=True),
            "cluster": Cluster(
                groups=(group("fast", 120, memory_gib), group("slow", 60, memory_gib)),
                network_efficiency=((1, 1.0), (2, 0.9)),
            ),
            "search": SearchSpace(idle_nodes=False, micro_batch=(1, 2)),
            "limits": Limits(framework_reserve_bytes=GIB // 8),
        }
        | fields
    )


def narrow(**fields: Any) -> SearchSpace:
    """Tensor groups of two on all nodes, one sequence, nothing recomputed or split, unless told."""
    usual = {
        "idle_nodes": False,
        "tensor_parallel": (2,),
        "micro_batch": (1,),
        "recompute": ("none",),
        "zero": (0,),
    }
    return SearchSpace.model_validate(usual | fields)


#: Launches, and kernels that ramp up, fused attention at 40 % of the peak; slow memory for experts,
#: so that small changes of it count.
RAMPS = {
    "launch_overhead_s": 1e-5,
    "memory_latency_s": 4e-5,
    "efficiency_half_flops": 1e8,
    "attention_maximum": 0.4,
    "attention_half_flops": 1e8,
    "grouped_maximum": 0.3,
    "grouped_bandwidth": 1e-3,
    "permute_bandwidth": 1e-3,
}


def group(name: str, tflops: float, memory_gib: float) -> NodeGroup:
    """One node of two GPUs."""
    one = gpu(name, tflops, memory_gib)
    speed = tflops * 1e8
    return nodes_of(
        one.model_copy(update=RAMPS),
        name=name,
        gpus_per_node=2,
        price_usd_per_hour=tflops / 10,
        intra_node=Link(bandwidth_bytes_per_s=2 * speed, latency_s=1e-6),
        inter_node=Link(bandwidth_bytes_per_s=speed / 4, latency_s=1e-5),
    )


def pipelined() -> PlanDocument:
    """Two stages on a node each, two replicas, ZeRO 1, full recomputation, uneven shares."""
    search = narrow(
        tensor_parallel=(1,),
        data_parallel=(2,),
        pipeline_parallel=(2,),
        micro_batch=(1, 2),
        recompute=("full",),
        zero=(1,),
        micro_batches="uneven",
    )
    return certified_document(instance(batch=6, search=search))


def tensor_parallel() -> PlanDocument:
    """Two replicas of one stage, each a tensor group filling a node; GPipe; sync between nodes.

    A quarter of the sync is hidden.
    """
    search = narrow(
        overlap=Overlap(gradient_sync=0.25),
        data_parallel=(2,),
        micro_batch=(1, 2),
        zero=(0, 1),
        schedule=("gpipe",),
        embedding_only_stages=True,
    )
    return certified_document(instance(search=search))


def attending(one: Instance) -> Instance:
    """The instance with fused attention in its blocks, a fifth of their FLOPs."""
    runs = tuple(
        run.but(layer=with_attention(run.layer)) if run.layer.is_block else run
        for run in one.workload.layer_runs
    )
    return one.but(workload={"layer_runs": runs})


def with_attention(layer: Layer) -> Layer:
    """The layer with a fifth of its FLOPs in scores, half of which are masked, and two norms."""
    scores = layer.forward_flops // 5
    fused = {"unweighted_flops": scores, "attention_flops": scores // 2}
    return layer.model_copy(update=fused | {"kernels": 3, "memory_kernels": 2})


def cheapest() -> PlanDocument:
    """Least training cost within tight limits; two stages of one tensor group, blocking sends.

    With fused attention; a quarter of the tensor-parallel traffic is hidden.
    """
    search = narrow(
        pipeline_parallel=(2,),
        blocking_sends=True,
        scatter_gather=True,
        overlap=Overlap(tensor_parallel=0.25),
        recompute=("none", "full"),
    )
    objective = Objective(minimize="training_cost", steps=1000)
    free = attending(instance(search=search, objective=objective))
    result = certified(free)
    assert result.step_time_ns is not None
    document = build_document(result, SolveOptions())
    return certified_document(
        free.but(
            limits={
                "max_step_time_s": document.step_time_s,
                "max_cost_usd_per_step": document.cost_usd_per_step,
                "max_price_usd_per_hour": document.price_usd_per_hour,
                "memory_headroom": 0.25,
            }
        )
    )


def on_spot() -> PlanDocument:
    """A node on demand, as it would be taken back too often, and one that is there on spot only."""
    search = narrow()
    one = instance(search=search)
    fast, slow = one.cluster.groups
    often = Spot(price_usd_per_hour=3.0, preemptions_per_hour=90.0)
    seldom = Spot(price_usd_per_hour=3.0, preemptions_per_hour=0.5, only=True)
    groups = (fast.but(spot=often), slow.but(spot=seldom))
    cluster = one.cluster.but(groups=groups)
    preemption = Preemption(restart_s=121, checkpoint_s=15.8)
    objective = Objective(minimize="cost_per_useful_sequence")
    return certified_document(
        instance(cluster=cluster, search=search, objective=objective, preemption=preemption)
    )


def profiled() -> PlanDocument:
    """Measured times at two micro-batch sizes, traffic on top; the slow head is a stage of its own.

    In units of 1 ms per micro-batch forward, the fast GPU first: head 20, the rest 2 (1 + 5 + 5) =
    22. With one block beside the head: 25 and 12.
    """
    entries = tuple(
        ProfileEntry(
            kind=kind, gpu=name, tp=2, micro_batch=b, forward_s=b * s, backward_s=3 * b * s
        )
        for kind, share in (("embedding", 1.0), ("block", 5.0), ("head", 20.0))
        for name, s in (("fast", share * 1e-3), ("slow", share * 2e-3))
        for b in (1, 4)
    )
    search = narrow(
        pipeline_parallel=(2,),
        micro_batch=(2,),
        embedding_only_stages=True,
        recompute=("none", "full"),
        zero=(0, 1),
    )
    profile = Profile(source="test", includes_tensor_parallel_traffic=False, entries=entries)
    return certified_document(instance(batch=16, search=search, profile=profile))


def idle() -> PlanDocument:
    """One node may stay idle."""
    search = narrow(idle_nodes=True)
    return certified_document(instance(search=search))


def zones() -> PlanDocument:
    """Two stages of two tensor groups: one fills a node in zone x, the other two nodes in y."""
    one = instance()
    fast, slow = one.cluster.groups
    groups = (
        fast.but(zone="x", gpus_per_node=4),
        slow.but(zone="y"),
        slow.but(zone="y", name="slow2"),
    )
    link = ZoneLink(bandwidth_bytes_per_s=1e9, latency_s=1e-4, source="test")
    cluster = one.cluster.but(groups=groups, zone_link=link)
    search = narrow(pipeline_parallel=(2,))
    return certified_document(instance(cluster=cluster, search=search))


def split_backward() -> PlanDocument:
    """ZB-H1 on two stages; measured weight gradients, but for the head.

    That has products without weights, and keeps bytes that no weight gradient needs.
    """
    entries = tuple(
        ProfileEntry(
            kind=kind,
            gpu=name,
            tp=2,
            micro_batch=1,
            forward_s=s,
            backward_s=2 * s,
            weight_s=None if kind == "head" else share * s,
        )
        for kind, s, share in (("embedding", 1e-3, 0.3), ("block", 5e-3, 0.9), ("head", 4e-3, 0.0))
        for name in ("fast", "slow")
    )
    search = narrow(pipeline_parallel=(2,), schedule=("zb-h1",), zero=(0, 1))
    profile = Profile(source="test", includes_tensor_parallel_traffic=True, entries=entries)
    one = instance(search=search, profile=profile)
    *others, head = one.workload.layer_runs
    released = {
        "unweighted_flops": 2 * 10**9,
        "released_replicated_bytes": 2 * 10**6,
        "released_sharded_bytes": 3 * 10**6,
    }
    changed = head.but(layer=released)
    return certified_document(one.but(workload={"layer_runs": (*others, changed)}))


def interleaved() -> PlanDocument:
    """Two chunks of one block each on either node, which send to each other in a circle."""
    search = narrow(
        pipeline_parallel=(2,),
        schedule=("interleaved",),
        virtual_pipeline=(2,),
        embedding_only_stages=True,
    )
    return certified_document(instance(search=search))


def with_core(one: Instance) -> Instance:
    """Blocks with a core of attention, and bytes that no tensor group can split."""
    core = {
        "unweighted_flops": 6 * 10**9,
        "core_kernels": 1,
        "core_bytes": 12 * 10**6,
        "unsplit_bytes": 3 * 10**6,
    }
    runs = tuple(
        run.but(layer=core) if run.layer.is_block else run for run in one.workload.layer_runs
    )
    return one.but(workload={"layer_runs": runs})


def split_sequence() -> PlanDocument:
    """Sequence parallelism and selective recomputation on two stages; 8-bit optimizer states."""
    search = narrow(
        pipeline_parallel=(2,),
        recompute=("selective",),
        sequence_parallel=True,
        scatter_gather=True,
    )
    one = with_core(instance(search=search))
    states = {"optimizer_bytes": 6, "optimizer_block_bytes": 8}
    return certified_document(one.but(workload=states))


def shared() -> PlanDocument:
    """Sequences on both GPUs of a node, experts on all four; keys and values go round a ring."""
    search = narrow(
        tensor_parallel=(1,),
        data_parallel=(2,),
        pipeline_parallel=(1,),
        zero=(1,),
        context_parallel=(2,),
        context_method="ring",
        expert_parallel=(4,),
        recompute=("none", "full"),
    )
    return certified_document(with_experts(instance(search=search)))


def whole_experts() -> PlanDocument:
    """The same experts on all GPUs of two tensor groups, which split none of them."""
    search = narrow(
        sequence_parallel=True,
        pipeline_parallel=(1,),
        zero=(1,),
        expert_parallel=(2,),
        expert_tensor_parallel=(1,),
    )
    return certified_document(with_experts(instance(search=search)))


def with_experts(one: Instance) -> Instance:
    """The instance with four experts in every block, and attention whose sequences are shared."""
    runs = []
    for run in one.workload.layer_runs:
        fields = {
            "expert_parameters": run.layer.sharded_parameters // 2,
            "expert_flops": run.layer.forward_flops // 2,
            "expert_all_reduces": 1,
            "routed_bytes": 4 * 10**6,
            "key_value_bytes": 6 * 10**6,
            "query_bytes": 8 * 10**6,
        }
        layer = run.layer.model_copy(update=fields) if run.layer.is_block else run.layer
        runs.append(run.but(layer=layer))
    return one.but(workload={"layer_runs": tuple(runs), "experts": 4})


def sharded() -> PlanDocument:
    """Two replicas of unlike speed that exchange gradients with every micro-batch: ZeRO 2 and 3.

    A quarter of that is hidden.
    """
    search = narrow(
        overlap=Overlap(sharding=0.25),
        data_parallel=(2,),
        micro_batch=(1, 2),
        zero=(2, 3),
        embedding_only_stages=True,
    )
    return certified_document(instance(search=search))


def infeasible() -> PlanDocument:
    """No plan: the memory of every GPU is too small."""
    search = narrow(recompute=("none", "full"), zero=(0, 1))
    return certified_document(instance(memory_gib=0.3, search=search))


def interrupted() -> PlanDocument:
    """A plan that is not proved: the configurations that no closed form bounds are open."""
    search = narrow(zero=(0, 1))
    done = certified(instance(search=search))
    assert done.step_time_ns is not None
    records = tuple(
        record.but(reason="open", bound_ns=record.bound_ns * 3 // 4)
        if record.reason == "solved" and record.bound_ns is not None
        else record
        for record in done.log.configs
    )
    bounds = [record.bound_ns for record in records if record.bound_ns is not None]
    stopped = replace(
        done,
        status=Status.FEASIBLE,
        termination=Termination.INTERRUPTED,
        bound=float(min(bounds)),
        log=SearchLog(configs=records),
    )
    return build_document(stopped, SolveOptions())


CASES: dict[str, Callable[[], PlanDocument]] = {
    one.__name__: cache(one)
    for one in (
        pipelined,
        tensor_parallel,
        cheapest,
        on_spot,
        profiled,
        idle,
        zones,
        split_backward,
        interleaved,
        split_sequence,
        sharded,
        shared,
        whole_experts,
        infeasible,
        interrupted,
    )
}
