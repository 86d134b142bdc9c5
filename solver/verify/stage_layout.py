"""Where stages with degrees of their own lie: the GPUs of the nodes, one after the other."""

from collections.abc import Sequence

from formulations.instance import Instance
from formulations.plan import Degrees, Shape
from formulations.slot_degrees import may_follow, slot_degrees
from solver.document import PlanDocument
from solver.verify.findings import Findings


def check_stages(
    document: PlanDocument, shape: Shape, order: Sequence[int], findings: Findings
) -> bool:
    """Whether the slots of stage after stage, replica by replica, take all GPUs in node order.

    All of a stage have the same degrees, and lie on one node or on whole nodes of one group.
    """
    start, taken = findings.num_problems, 0
    instance = document.instance
    owner, names = instance.cluster.node_groups, instance.cluster.node_names
    sizes = [instance.cluster.groups[owner[node]].gpus_per_node for node in order]
    gpus = [(i, gpu) for i, size in enumerate(sizes) for gpu in range(size)]
    for k in range(shape.pp):
        own = document.replicas[0].stages[k].degrees
        first = taken
        for r, replica in enumerate(document.replicas):
            stage, field = replica.stages[k], f"replicas[{r}].stages[{k}]"
            findings.equal(f"{field}.degrees", stage.degrees, own)
            slot = gpus[taken : taken + own.width]
            taken += own.width
            text = f"{own.width} GPUs of one node, behind those of the slot before"
            whole = len(slot) == own.width and len({i for i, _ in slot}) == 1
            if not findings.require(whole, f"{field}.gpus", stage.gpus, text):
                return False
            findings.equal(f"{field}.node", stage.node, names[order[slot[0][0]]])
            findings.equal(f"{field}.gpus", stage.gpus, tuple(gpu for _, gpu in slot))
        nodes = sorted({i for i, _ in gpus[first:taken]})
        groups = {owner[order[i]] for i in nodes}
        filled = len(nodes) == 1 or taken - first == sum(sizes[i] for i in nodes)
        text = "one node, or whole nodes of one group"
        field = f"replicas[:].stages[{k}].node"
        findings.require(filled and len(groups) == 1, field, [names[order[i]] for i in nodes], text)
        _check_degrees(instance, shape, own, sizes[nodes[0]], f"replicas[0].stages[{k}]", findings)
        begun = document.replicas[0].stages[0].degrees
        runs = may_follow(instance, shape.zero, begun, own, k + 1 == shape.pp)
        text = f"what the target {instance.search.target} runs behind {begun}"
        findings.require(runs, f"replicas[:].stages[{k}].degrees", own, text)
    text = f"{len(gpus)}, all of the nodes used"
    findings.require(taken == len(gpus), "replicas[:].stages[:].gpus", taken, text)
    return findings.num_problems == start


def _check_degrees(
    instance: Instance, shape: Shape, own: Degrees, gpus: int, field: str, findings: Findings
) -> None:
    """Whether a node has such slots, and a micro-batch so many parts."""
    slots = slot_degrees(instance, gpus, 1)
    allowed = [degrees for degrees in slots if shape.micro_batch % degrees.parts == 0]
    text = f"one of {allowed}"
    findings.require(own in allowed, f"{field}.degrees", own, text)
