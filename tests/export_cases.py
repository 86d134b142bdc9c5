"""Plans to be exported: GPT-2 on a node of four A100 and two of two A10, cut by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.plan import Configuration, Degrees, Group, Plan, Recomputed, uniform_degrees
from solver.export.job import Job

CLUSTER = """
cluster:
  groups:
    - {name: big, gpu: A100-80, gpus_per_node: 4, nodes: 1, inter_node: InfiniBand HDR}
    - {name: small, gpu: A10, gpus_per_node: 2, nodes: 2, inter_node: InfiniBand HDR}
"""


def instance_of(workload: str = "catalogue: gpt2", search: str = "target: any") -> Instance:
    """Eight GPUs on three hosts, batches of 16."""
    text = f"""
name: three hosts
workload: {{{workload}, global_batch: 16}}
{CLUSTER}
search: {{{search}}}
"""
    return parse_instance(text, "x.yaml", Path())


def plan_of(
    instance: Instance,
    cuts: tuple[int, ...] = (0, 4, 7, 9, 14),
    order: tuple[int, ...] = (1, 0, 1),
    shares: tuple[int, ...] = (4, 4),
    way: Any = "none",
    tp: int = 1,
    **config: Any,
) -> Plan:
    """Dp 2, pp 4 on A10, A100, A10: stages of 3, 3, 2 and 4 blocks, unless said otherwise."""
    fields: dict[str, Any] = {
        "degrees": uniform_degrees(instance, tp),
        "dp": 2,
        "pp": 4,
        "micro_batch": 2,
        "schedule": "1f1b",
        "recompute": (way,),
        "zero": 1,
        "nodes_used": (1, 2),
        **config,
    }
    tables = build_tables(instance, Configuration.model_validate(fields))
    return Decisions(order, cuts, shares).plan(tables)


def job_of(search: str = "target: any", workload: str = "catalogue: gpt2", **plan: Any) -> Job:
    instance = instance_of(workload, search)
    return Job(instance, plan_of(instance, **plan))


#: Tensor groups of two on one replica.
TENSOR: dict[str, Any] = {"tp": 2, "dp": 1, "shares": (8,), "order": (0, 1, 1)}


def recomputing(job: Job, numbers: tuple[int, ...]) -> Job:
    """The job with so many first blocks fully recomputed on each virtual stage."""
    replicas = []
    for replica in job.plan.replicas:
        pairs = zip(replica.stages, numbers, strict=True)
        stages = [
            stage.but(recomputed=Recomputed(way="full" if num else "none", blocks=num))
            for stage, num in pairs
        ]
        replicas.append(replica.but(stages=tuple(stages)))
    return Job(job.instance, job.plan.but(replicas=tuple(replicas)))


#: Two chunks per GPU.
CHUNK_CUTS = (0, 2, 4, 5, 7, 8, 9, 11, 14)
ONE_STAGE: dict[str, Any] = {
    "dp": 8,
    "pp": 1,
    "cuts": (0, 14),
    "shares": (1,) * 8,
    "order": (0, 1, 1),
}
#: GPT-2's sizes with a head of its own: frameworks that share no matrix between stages take it.
UNTIED = (
    "sizes: {hidden_size: 768, layers: 12, heads: 12, vocabulary_size: 50257, ffn_size: 3072,"
    " tied_embeddings: false}, sequence_length: 1024"
)
UNEVEN = job_of(workload=UNTIED)
CHUNKS = job_of(workload=UNTIED, cuts=CHUNK_CUTS, schedule="interleaved", vpp=2)
#: All micro-batches of a replica go through a chunk one after the other.
GROUPED = job_of(
    workload=UNTIED,
    cuts=CHUNK_CUTS,
    schedule="interleaved",
    vpp=2,
    micro_batch=1,
    shares=(8, 8),
    microbatch_group=8,
)
SHARDED = job_of(workload=UNTIED, zero=3, **ONE_STAGE)
ZERO_BUBBLE = job_of(workload=UNTIED, schedule="zb-h1")
#: Mixtral, of which four GPUs share the experts, two of every tensor group: each expert is whole.
WHOLE_EXPERTS = job_of(
    "target: any, expert_parallel: 4, sequence_parallel: true",
    "catalogue: mixtral-8x7b, sequence_length: 512",
    tp=2,
    pp=2,
    ep=4,
    etp=1,
    cuts=(0, 17, 34),
)


def in_parts(*degrees: Degrees) -> Job:
    """One replica of two stages, of 9 and 5 layers, in parts on the A100 node and one of A10."""
    job = job_of(workload=UNTIED, pp=2, dp=1, cuts=(0, 9, 14), shares=(8,), order=(0, 1))
    (replica,) = job.plan.replicas
    stages = tuple(
        stage.but(group=Group(node=node, gpus=tuple(range(slot.width))), degrees=slot)
        for node, (stage, slot) in enumerate(zip(replica.stages, degrees, strict=True))
    )
    config = job.config.but(degrees=degrees, nodes_used=(1, 1))
    changed = job.plan.but(config=config, replicas=(replica.but(stages=stages),))
    return Job(job.instance, changed)


def sharing(method: str) -> Job:
    """Mixtral on two stages, each of which shares sequences in pairs, and experts among four."""
    search = f"target: any, context_parallel: 2, context_method: {method}, expert_parallel: 4"
    instance = instance_of("catalogue: mixtral-8x7b, sequence_length: 512", search)
    degrees = (Degrees(tp=1, cp=2),) * 2
    return Job(instance, plan_of(instance, (0, 17, 34), dp=2, pp=2, ep=4, degrees=degrees))


MTP = f"{UNTIED.removesuffix('}, sequence_length: 1024')}, mtp_layers: 1}}, sequence_length: 1024"
ALONE = "target: any, embedding_only_stages: true"
JOBS: dict[str, Job] = {
    "uneven": UNEVEN,
    "gpt2": job_of(zero=3, **ONE_STAGE),
    "llama": job_of(workload="catalogue: llama3-8b, sequence_length: 512", cuts=(0, 9, 18, 24, 34)),
    "chunks": CHUNKS,
    "groups": GROUPED,
    "zero_bubble": ZERO_BUBBLE,
    "sharded": SHARDED,
    "whole_experts": WHOLE_EXPERTS,
    "ring": sharing("ring"),
    "exchange": sharing("all_to_all"),
    "alone": job_of(ALONE, cuts=(0, 1, 7, 9, 14)),
    "predicting": job_of(workload=MTP),
    "tensor": job_of(**TENSOR),
    "one_stage": job_of(**ONE_STAGE),
    "in_bf16": job_of(workload=f"{UNTIED}, gradient_precision: bf16, optimizer_state: bf16"),
    "fp32": job_of(workload=f"{UNTIED}, precision: fp32"),
    "tf32": job_of(workload=f"{UNTIED}, precision: tf32"),
    "fp16": job_of(workload=f"{UNTIED}, precision: fp16"),
    "fused": job_of(workload=f"{UNTIED}, fused_cross_entropy: true"),
    "no_zero": job_of(workload=UNTIED, zero=0, order=(0, 1, 1)),
    "two_meshes": job_of(order=(0, 1, 1)),
    "mixed_stage": job_of(pp=1, dp=8, cuts=(0, 14), shares=(1,) * 8, order=(1, 0, 1)),
    "unlike": in_parts(Degrees(tp=2, parts=2), Degrees(tp=1, parts=2)),
    "recomputing": recomputing(UNEVEN, (3, 3, 2, 4)),
    "first_blocks": recomputing(UNEVEN, (2, 2, 2, 2)),
    "stage_by_stage": recomputing(UNEVEN, (3, 1, 0, 0)),
    "replicated": job_of(workload=UNTIED, zero=0, **ONE_STAGE),
    "one_replica": job_of(
        workload=UNTIED, dp=1, pp=8, cuts=(0, 3, 4, 5, 7, 8, 9, 11, 14), shares=(8,), zero=0
    ),
    "pairs": job_of(
        "target: any, sequence_parallel: false",
        UNTIED,
        tp=2,
        **ONE_STAGE | {"dp": 4, "shares": (2,) * 4},
    ),
    "odd_name": replace(
        UNEVEN, instance=UNEVEN.instance.model_copy(update={"name": "a'b; rm -rf $HOME\nx"})
    ),
}
