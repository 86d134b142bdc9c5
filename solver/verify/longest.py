"""What no step takes longer than: sums stay within 64 bits, and a claim of any time is of memory.

Layers on one node group take 2^52 ns for all micro-batches at most, which `TimeColumns` sees to, so
on whichever of 100 groups each of them lies, less than `ANY_TIME_NS` less `LONGEST_NS`.
"""

from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.plan import GRADIENTS_SPLIT, Shape
from formulations.units import NANOSECONDS_PER_SECOND
from solver.verify.families import NEVER
from solver.verify.volumes import touched_bytes

#: More than any step time: no plan is faster if none fits.
ANY_TIME_NS = NEVER - 1
#: Of that on links, and for the optimizer.
LONGEST_NS = 1 << 56


def check_longest(instance: Instance, shape: Shape) -> None:
    """Returns if no path through a step of the shape has more than `LONGEST_NS` beside its layers.

    A node's link is shared by its GPUs, that between zones by all. A path crosses boundaries of
    stages at most twice for each micro-batch and each stage, for all chunks. Gradients and
    parameters are on links inside nodes once, and between them twice at most, with ZeRO 2 and 3 for
    each micro-batch: those once, these twice. Raises InstanceError.
    """
    workload, cluster = instance.workload, instance.cluster
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    widest = max(group.gpus_per_node for group in cluster.groups)
    tp = 1 if shape.has_expert_grid else min((one.tp for one in shape.degrees_used), default=1)
    number = sum(
        run.count * run.layer.parameters_per_gpu(tp, shape.pp) for run in workload.layer_runs
    )
    total = workload.global_batch // shape.micro_batch
    crossings = 2 * shape.vpp * (total + shape.pp)
    exchanges = total + 1 if shape.zero >= GRADIENTS_SPLIT else 2  # reducing at the end is two
    each_bytes = 3 * number * (workload.gradient_bytes + 2 * workload.parameter_bytes)
    size_bytes = crossings * shape.micro_batch * workload.largest_message_bytes
    links = [link for group in cluster.groups for link in (group.intra_node, group.inter_node)]
    shares = [(link, widest) for link in links]
    shares += [(link, shape.slots * widest) for link in cluster.links_among(used)]
    s_per_byte = max(sharing / link.bandwidth_bytes_per_s for link, sharing in shares)
    least = min(efficiency for _, efficiency in cluster.network_efficiency)
    size_bytes += exchanges * each_bytes
    starts = crossings * widest + 9 * exchanges * shape.slots * widest * len(workload.layers)
    time_s = size_bytes * s_per_byte / least
    time_s += starts * max(link.latency_s for link, _ in shares)
    slowest = min(group.gpu.memory_bandwidth_bytes_per_s for group in cluster.groups)
    time_s += number * touched_bytes(workload) / slowest
    if not time_s * NANOSECONDS_PER_SECOND <= LONGEST_NS:
        found = f"up to {time_s:.3g} s for one step on links"
        raise InstanceError(
            "cluster", found, f"at most {LONGEST_NS / NANOSECONDS_PER_SECOND:.3g} s"
        )
