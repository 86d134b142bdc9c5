"""Layers, degrees and configurations in words.

Blocks count from 0, as in Megatron-LM; embedding and head have letters. Plan files count along the
whole chain instead: 0 is the embedding, 1 the first block.
"""

from collections.abc import Iterable
from itertools import accumulate, groupby

from formulations.instance import Instance, Workload
from formulations.plan import Configuration, Degrees, Plan
from solver.document import PlanDocument
from solver.files import table_beside
from solver.report.quantities import ranges

#: How values of documents are said, by kind.
WORDS = table_beside("solver.report", "words.yaml")
DEGREES = "tensor x data x pipeline, micro-batch"  #: heading of `degrees_line`


def layers_text(workload: Workload, layers: Iterable[int]) -> str:
    """Some layers of the chain: "E, 0-2" for the embedding and the first three blocks."""
    chain = workload.layers
    numbers = list(accumulate((layer.is_block for layer in chain), initial=0))
    runs = groupby(sorted(set(layers)), key=lambda n: chain[n].is_block)
    return ", ".join(
        ranges(numbers[n] for n in run)
        if are_blocks
        else ", ".join(chain[n].kind[0].upper() for n in run)
        for are_blocks, run in runs
    )


def degrees_of(plan: PlanDocument | Plan) -> list[Degrees]:
    """Those of its node groups; of its stages where every one has its own."""
    of_groups = [] if plan.config is None else plan.config.degrees_used
    return of_groups or [s.degrees for replica in plan.replicas for s in replica.stages]


def degrees_line(config: Configuration, degrees: Iterable[Degrees]) -> str:
    """Tensor x data x pipeline, sequences per micro-batch; `degrees`: of its stages or groups."""
    return f"{tensor_text(degrees)} x {config.dp} x {config.pp}, {config.micro_batch}"


def tensor_text(degrees: Iterable[Degrees]) -> str:
    """GPUs of a tensor group, *4 where 4 of them share a stage; all kinds if they differ."""
    words = (f"{d.tp}*{d.parts}" if d.parts > 1 else f"{d.tp}" for d in degrees)
    return " / ".join(dict.fromkeys(words)) or "by stage"


def experts_text(config: Configuration) -> str:
    """How many GPUs share the experts, and whether each has its own whole."""
    where = f"over {config.ep} GPUs" if config.ep > 1 else "on every GPU"
    return f"{'whole ' if config.etp else ''}experts {where}"


def chunks_text(config: Configuration) -> str:
    """Chunks of layers of a GPU, and how many micro-batches they take in turn, unless pp."""
    group = config.microbatch_group
    return f"{config.vpp} chunks per GPU" + (f" in groups of {group}" if group else "")


def shards_text(config: Configuration) -> str:
    """What replicas split, and in groups of how many of them."""
    kept = " that keeps gradients" * (not config.sync_each_batch)
    groups = f" in groups of {config.shard_replicas} replicas" * (config.optimizer_instances > 1)
    return f"ZeRO {config.zero}{kept}{groups}"


def one_line(config: Configuration) -> str:
    """A configuration among the others of its instance."""
    chunks = f", {chunks_text(config)}" if config.vpp > 1 else ""
    shared = f", context {config.cp}" if config.cp > 1 else ""
    shared += f", {experts_text(config)}" if config.has_expert_grid else ""
    nodes, tensor = " + ".join(map(str, config.nodes_used)), tensor_text(config.degrees_used)
    return (
        f"tensor {tensor} x data {config.dp} x pipeline {config.pp}{chunks}{shared}, "
        f"micro-batch {config.micro_batch}, {config.schedule}, recomputed "
        f"{' or '.join(config.recompute)}, {shards_text(config)}, nodes {nodes}"
    )


def by_group(instance: Instance, config: Configuration) -> str | None:
    """Degrees of every node group used; None where all are alike and undivided, or by stage."""
    alike = len(set(config.degrees_used)) == 1 and config.degrees_used[0].parts == 1
    if config.per_stage or alike:
        return None
    groups = zip(instance.cluster.groups, config.degrees, config.nodes_used, strict=True)
    return ", ".join(
        f"{group.name}: tp {degrees.tp} x {degrees.parts}" + (" parts" if degrees.parts > 1 else "")
        for group, degrees, count in groups
        if count
    )
