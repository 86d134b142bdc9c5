"""What the figures of a plan rest on, per GPU type: kind and source."""

from collections.abc import Sequence

from formulations.instance.evidence import Evidence
from formulations.instance.extent import Name
from formulations.instance.instance import Instance
from formulations.instance.record import Record


class GpuEvidence(Record):
    """Where the figures of a GPU type come from."""

    gpu: Name
    peak: Evidence  #: with the memory's bandwidth
    memory: Evidence
    intra_node: Evidence
    inter_node: Evidence
    layer_times: Evidence  #: of a profile, or of the analytic model's efficiency


def gpu_evidence(instance: Instance, nodes_used: Sequence[int]) -> tuple[GpuEvidence, ...]:
    """One entry per GPU type and links of the nodes used, in the cluster's order."""
    profile, precision = instance.profile, instance.workload.precision
    found = []
    for group, used in zip(instance.cluster.groups, nodes_used, strict=True):
        if not used:
            continue
        gpu, inside, outside = group.gpu, group.intra_node, group.inter_node
        times = gpu.efficiency_evidence(precision)
        found.append(
            GpuEvidence(
                gpu=gpu.name,
                peak=Evidence(kind=gpu.kind, source=gpu.source),
                memory=Evidence(kind=gpu.memory_kind, source=gpu.memory_source),
                intra_node=Evidence(kind=inside.kind, source=inside.source),
                inter_node=Evidence(kind=outside.kind, source=outside.source),
                layer_times=Evidence(kind="measured", source=profile.source) if profile else times,
            )
        )
    return tuple(dict.fromkeys(found))
