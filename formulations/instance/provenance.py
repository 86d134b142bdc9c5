"""What the figures of a plan rest on, per GPU type: kind and source."""

from collections.abc import Sequence

from formulations.instance.cluster import GpuType
from formulations.instance.evidence import Evidence
from formulations.instance.extent import Name
from formulations.instance.instance import Instance
from formulations.instance.precision import Precision
from formulations.instance.profile import Profile
from formulations.instance.record import Record


class GpuEvidence(Record):
    """Where the figures of a GPU type come from."""

    gpu: Name
    peak: Evidence  #: in the workload's precision
    memory_bandwidth: Evidence
    memory: Evidence
    intra_node: Evidence
    inter_node: Evidence
    layer_times: Evidence  #: of a profile, or of the analytic model's efficiency


def _layer_times(profile: Profile | None, gpu: GpuType, precision: Precision) -> Evidence:
    """What was measured, or else what the analytic model rests on."""
    if profile is None or (profile.completed and not profile.measures(gpu.name)):
        return gpu.efficiency_evidence(precision)
    return Evidence(kind="measured", source=profile.source)


def gpu_evidence(instance: Instance, nodes_used: Sequence[int]) -> tuple[GpuEvidence, ...]:
    """One entry per GPU type and links of the nodes used, in the cluster's order."""
    precision = instance.workload.precision
    found = []
    for group, used in zip(instance.cluster.groups, nodes_used, strict=True):
        if not used:
            continue
        gpu, inside, outside = group.gpu, group.intra_node, group.inter_node
        found.append(
            GpuEvidence(
                gpu=gpu.name,
                peak=gpu.peak_evidence(precision),
                memory_bandwidth=Evidence(kind=gpu.kind, source=gpu.source),
                memory=Evidence(kind=gpu.memory_kind, source=gpu.memory_source),
                intra_node=Evidence(kind=inside.kind, source=inside.source),
                inter_node=Evidence(kind=outside.kind, source=outside.source),
                layer_times=_layer_times(instance.profile, gpu, precision),
            )
        )
    return tuple(dict.fromkeys(found))
