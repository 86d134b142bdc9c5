"""Whether a plan inside a switch file is one: all layers in every replica, on GPUs that exist."""

from formulations.instance import Cluster, Workload
from formulations.plan import Plan
from solver.verify.findings import Findings


def check_plan(
    workload: Workload, cluster: Cluster, plan: Plan, field: str, findings: Findings
) -> None:
    """Adds a problem for layers that are missing or doubled, and for GPUs that are not there."""
    names = cluster.node_names
    findings.equal("cluster: names of nodes", len(set(names)), len(names))
    sizes = [cluster.groups[j].gpus_per_node for j in cluster.node_groups]
    taken: dict[tuple[int, int], tuple[int, int]] = {}
    findings.require(bool(plan.replicas), f"{field}.replicas", "none", "one at least")
    for r, replica in enumerate(plan.replicas):
        end = 0
        for k, stage in enumerate(replica.stages):
            where = f"{field}.replicas[{r}].stages[{k}]"
            findings.equal(f"{where}.layers[0]", stage.layers[0], end)
            end = max(end, stage.layers[1])
            node, gpus = stage.group.node, stage.group.gpus
            known = node < len(sizes) and all(gpu < sizes[node] for gpu in gpus)
            findings.require(known, f"{where}.group", stage.group, "GPUs of a node that is there")
            findings.equal(f"{where}: GPUs", len(set(gpus)), stage.degrees.width)
            findings.equal(f"{where}: GPUs", len(gpus), stage.degrees.width)
            owner = r, k % plan.shape.pp
            alone = all(taken.setdefault((node, gpu), owner) == owner for gpu in gpus)
            findings.require(alone, f"{where}.group", stage.group, "GPUs of one stage alone")
        findings.equal(f"{field}.replicas[{r}]: layers", end, len(workload.layers))
    _check_experts(workload, plan, field, findings)


def _check_experts(workload: Workload, plan: Plan, field: str, findings: Findings) -> None:
    """Of every layer with experts, there are as many copies as share them, at least."""
    shape, copies = plan.shape, [0] * len(workload.layers)
    stages = [stage for replica in plan.replicas for stage in replica.stages]
    for stage in stages:
        tp = 1 if shape.etp is not None else stage.degrees.tp
        for layer in range(stage.layers[0], min(stage.layers[1], len(copies))):
            copies[layer] += stage.degrees.width // tp
    least = min(
        (n for n, layer in zip(copies, workload.layers, strict=True) if layer.expert_parameters),
        default=shape.ep,
    )
    findings.require(least >= shape.ep, f"{field}.shape.ep", shape.ep, f"at most {least}")
