"""Context and expert parallelism, degrees by stage: what an instance allows."""

from collections.abc import Sequence
from typing import NamedTuple, get_args

from formulations.instance.cluster import Cluster, flash_remedy
from formulations.instance.instance import PlainSchedule
from formulations.instance.positions import Place
from formulations.instance.schema import SearchFile
from formulations.instance.target import TARGET_NAMES, Sharing, shares
from formulations.instance.workload import ExpertSplit, Workload

#: Pieces of a sequence per GPU that shares it: one from each end (formulations.costs.context).
PIECES = 2


class Fault(NamedTuple):
    """What is wrong with a degree, and which ones may be."""

    found: str
    allowed: str


def expert_fault(workload: Workload, cluster: Cluster, profiled: bool, ep: int) -> Fault | None:
    """Why `ep` GPUs cannot share the experts of a block."""
    experts, gpus = workload.experts, sum(g.nodes * g.gpus_per_node for g in cluster.groups)
    if ep > 1 and not experts:
        return Fault(f"{ep} GPUs for the experts of a model without any", "1")
    if ep > 1 and profiled:
        return Fault(f"{ep}, of which a profile says nothing", "1, or no profile")
    if ep > gpus:
        return Fault(f"{ep} GPUs, of {gpus} in the cluster", f"1 to {gpus}")
    if experts and experts % ep:
        return Fault(
            f"{ep} does not divide the {experts} experts of a block", f"divisors of {experts}"
        )
    return None


def context_fault(workload: Workload, cluster: Cluster, profiled: bool, cp: int) -> Fault | None:
    """Why `cp` GPUs of a node cannot share a sequence."""
    most, tokens = max(group.gpus_per_node for group in cluster.groups), workload.sequence_length
    if cp == 1:
        return None
    if cp > most:
        found = f"{cp} GPUs per sequence, more than any node has"
        return Fault(found, f"1 to {most}, the GPUs of the largest node")
    if profiled:
        return Fault(f"{cp}, of which a profile says nothing", "1, or no profile")
    if not workload.flash_attention:
        allowed = f"1, or {flash_remedy(cluster, workload.precision)}"
        return Fault(f"{cp} GPUs per sequence without flash attention", allowed)
    if any(run.layer.output_tensors > 1 for run in workload.layer_runs):
        return Fault(f"{cp} GPUs per sequence of an encoder-decoder", "1")
    if tokens % (PIECES * cp):
        found = f"{cp} GPUs take {PIECES} pieces each of a sequence of {tokens} tokens"
        return Fault(found, f"degrees whose double divides {tokens}")
    return None


def resolve_experts(
    written: SearchFile, search: Place, workload: Workload, cluster: Cluster, profiled: bool
) -> list[int]:
    """Sizes of expert-parallel groups: as written, else all powers of two that can be used."""
    experts, gpus = workload.experts, sum(g.nodes * g.gpus_per_node for g in cluster.groups)
    if written.expert_parallel is None:
        most = 1 if not experts or profiled else min(experts, gpus)
        return [1 << i for i in range(most.bit_length()) if experts % (1 << i) == 0]
    for i, ep in enumerate(written.expert_parallel):
        if fault := expert_fault(workload, cluster, profiled, ep):
            raise search.at("expert_parallel").listed(i).error(*fault)
    return written.expert_parallel


def resolve_expert_split(
    written: SearchFile,
    search: Place,
    workload: Workload,
    profiled: bool,
    degrees: Sequence[int],
    split: bool,
) -> list[ExpertSplit]:
    """GPUs that split every expert: as written, else 1 too where it makes a difference.

    degrees: of tensor groups. split: whether these split the sequence.
    """
    alone = max(degrees) == 1
    fault = expert_split_fault(workload, profiled, split or alone)
    if written.expert_tensor_parallel is None:
        return ["tp"] if fault or alone else [1, "tp"]
    if fault and 1 in written.expert_tensor_parallel:
        at = search.at("expert_tensor_parallel")
        raise at.listed(written.expert_tensor_parallel.index(1)).error(*fault)
    alike = Sharing(min(degrees), cp=1, ep=1, sharded=True, sequence_parallel=split)
    field, reason = shares(written.target, workload, alike) or (None, None)
    if field == "expert_tensor_parallel" and 1 not in written.expert_tensor_parallel:
        found = f"tp, with the target {TARGET_NAMES[written.target]}, {reason}"
        at = search.at("expert_tensor_parallel").listed(0)
        raise at.error(found, "1, or tensor_parallel: 1")
    return written.expert_tensor_parallel


def expert_split_fault(workload: Workload, profiled: bool, split: bool) -> Fault | None:
    """Why the GPUs of a tensor group cannot have experts whole."""
    if not workload.experts:
        return Fault("1 GPU per expert of a model without any", "tp")
    if profiled:
        return Fault("1 GPU per expert, of which a profile says nothing", "tp, or no profile")
    if not split:
        found = "1 GPU per expert, where tensor groups do not split the sequence"
        return Fault(found, "tp, or sequence_parallel: true")
    return None


def check_context(
    written: SearchFile, search: Place, workload: Workload, cluster: Cluster, profiled: bool
) -> None:
    """Raises InstanceError for the first degree that cannot be used."""
    for i, cp in enumerate(written.context_parallel):
        fault = context_fault(workload, cluster, profiled, cp)
        if fault := fault or _beside_tensor_groups(written, workload, cluster, cp):
            raise search.at("context_parallel").listed(i).error(*fault)


def _beside_tensor_groups(
    written: SearchFile, workload: Workload, cluster: Cluster, cp: int
) -> Fault | None:
    """Why no tensor degree leaves room for `cp` GPUs per sequence."""
    if cp == 1:
        return None
    degrees = written.tensor_parallel or [1]
    sizes = sorted({group.gpus_per_node for group in cluster.groups})
    named = f"{cp} tensor groups of {_either(degrees)} GPUs per sequence"
    filling = [tp for tp in degrees if any(size % (tp * cp) == 0 for size in sizes)]
    if not filling:
        nodes = _either(sizes)
        return Fault(f"{named}, which fill no node of {nodes}", f"products that divide {nodes}")
    tokens, heads = workload.sequence_length, workload.kv_heads
    pieces = [tp for tp in filling if tokens % (PIECES * cp * tp) == 0]
    if not pieces:
        found = f"{named}, which cannot split {tokens} tokens into {PIECES} pieces each"
        return Fault(found, f"products whose double divides {tokens}")
    if written.context_method == "all_to_all" and all(heads % (tp * cp) for tp in pieces):
        found = f"{named}, which exchange the {heads} key and value heads"
        return Fault(found, f"products that divide {heads}, or context_method: ring")
    return None


def _either(values: Sequence[int]) -> str:
    return " or ".join(map(str, values))


def check_per_stage(written: SearchFile, search: Place, cluster: Cluster) -> None:
    """Raises InstanceError where no stage could have degrees of its own."""
    if written.degrees != "per_stage":
        return
    if cluster.has_zones:
        found = "per_stage, with node groups in several zones"
        raise search.at("degrees").error(found, "uniform or per_group, or one zone")
    if not set(written.schedule) & set(get_args(PlainSchedule)):
        found = f"per_stage, with the schedule {' or '.join(written.schedule)}"
        raise search.at("degrees").error(found, "uniform or per_group, or 1f1b or gpipe too")
    for field in ("context_parallel", "expert_parallel"):
        sizes: list[int] | None = getattr(written, field)
        if sizes is not None and 1 not in sizes:
            found = f"{sizes[0]}, with degrees: per_stage"
            raise search.at(field).listed(0).error(found, "1 too, or degrees: per_group")
    if written.expert_tensor_parallel == [1]:
        at = search.at("expert_tensor_parallel").listed(0)
        raise at.error("1, with degrees: per_stage", "tp too, or degrees: per_group")
