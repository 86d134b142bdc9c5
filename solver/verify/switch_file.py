"""All checks of one switch file: what moves, that all of it arrives once, times and bound.

What moves from plan to plan, the port bound and the published rule are those of
`formulations.switching`; none of the planner's choices is believed.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from formulations.instance import Cluster, Workload
from formulations.plan import Plan
from formulations.switching.shards import layout_of
from formulations.switching.switch import Sending, Switch, switch_of
from solver.switch_document import KINDS, SwitchDocument, switch_figures
from solver.verify.cascade import Effort
from solver.verify.findings import Findings, Verification, verification


def verify_switch(document: SwitchDocument, _: Effort | None = None) -> Verification:
    """Checks that everything arrives once from where it is, and all figures."""
    return verification(document, lambda findings: _check_content(document, findings))


def _check_content(document: SwitchDocument, findings: Findings) -> None:
    cluster, names = document.cluster, document.cluster.node_names
    findings.equal("cluster: names of nodes", len(set(names)), len(names))
    for name, plan in (("before", document.before), ("after", document.after)):
        _check_plan(document.workload, cluster, plan, name, findings)
    findings.halt()
    before, after = (layout_of(cluster, plan) for plan in (document.before, document.after))
    switch = switch_of(cluster, document.workload, before, after, KINDS[document.moves])
    same, text = document.classes == switch.classes, "those into which both plans cut what moves"
    findings.require(same, "classes", "others", text)
    findings.halt()
    _check_sendings(document.sendings, switch, findings)
    findings.halt()
    findings.note(f"every part arrives once: {len(switch.classes)} classes of slices")
    for field, expected in switch_figures(switch, document.sendings).items():
        findings.equal(field, getattr(document, field), expected)
    findings.note("time of the busiest port or link, what no plan goes below, the published rule")


def _check_sendings(sendings: Sequence[Sending], switch: Switch, findings: Findings) -> None:
    """Each needer of a class gets every byte of it once, from owners."""
    classes, node_of = switch.classes, switch.network.node_of
    received: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for i, way in enumerate(sendings):
        field, allowed = f"sendings[{i}]", f"below {len(classes)}"
        if not findings.require(way.number < len(classes), f"{field}.number", way.number, allowed):
            continue
        owners, needers = classes[way.number].owners, set(classes[way.number].needers)
        owner = way.source in owners
        findings.require(owner, f"{field}.source", way.source, "a GPU that holds the class")
        once = len(set(way.receivers)) == len(way.receivers) and needers.issuperset(way.receivers)
        text = "GPUs that lack the class, once each"
        if not findings.require(once, f"{field}.receivers", way.receivers, text):
            continue
        nodes = {node_of[gpu] for gpu in way.receivers}
        forwards = way.via is None or (way.via in way.receivers and len(nodes) == 1)
        findings.require(forwards, f"{field}.via", way.via, "a receiver, of the node of all")
        for gpu in way.receivers:
            received[way.number, gpu].append((way.begin, way.end))
    findings.halt()
    for number, moved in enumerate(classes):
        for gpu in moved.needers:
            ranges = sorted(received[number, gpu])
            edges = [(0, 0), *ranges, (moved.size_bytes, moved.size_bytes)]
            covered = all(low[1] == high[0] for low, high in pairwise(edges))
            covered &= all(begin < end for begin, end in ranges)
            field = f"sendings: bytes of class {number} to GPU {gpu}"
            findings.require(covered, field, ranges, "every byte of the class once")


def _check_plan(
    workload: Workload, cluster: Cluster, plan: Plan, field: str, findings: Findings
) -> None:
    """Adds a problem for layers that are missing or doubled, and for GPUs that are not there."""
    sizes = [cluster.groups[j].gpus_per_node for j in cluster.node_groups]
    taken: dict[tuple[int, int], tuple[int, int]] = {}
    copies = [0] * len(workload.layers)  # ranks that hold the experts of a layer, by layer
    findings.require(bool(plan.replicas), f"{field}.replicas", "none", "one at least")
    for r, replica in enumerate(plan.replicas):
        ends = [0, *(stage.layers[1] for stage in replica.stages)]
        starts = [*(stage.layers[0] for stage in replica.stages), len(copies)]
        findings.equal(f"{field}.replicas[{r}]: layers", starts, ends)
        for k, stage in enumerate(replica.stages):
            where, node = f"{field}.replicas[{r}].stages[{k}]", stage.group.node
            gpus, width = stage.group.gpus, stage.degrees.width
            exists = node < len(sizes) and all(gpu < sizes[node] for gpu in gpus)
            findings.require(exists, f"{where}.group", stage.group, "GPUs of a node that is there")
            found = len(gpus), len(set(gpus))
            findings.equal(f"{where}: GPUs, and those that differ", found, (width, width))
            owner = r, k % plan.config.pp
            alone = all(taken.setdefault((node, gpu), owner) == owner for gpu in gpus)
            findings.require(alone, f"{where}.group", stage.group, "GPUs of one stage alone")
            ranks = width // (1 if plan.config.etp is not None else stage.degrees.tp)
            for layer in range(stage.layers[0], min(stage.layers[1], len(copies))):
                copies[layer] += ranks
    ep, layers = plan.config.ep, zip(copies, workload.layers, strict=True)
    fewest = min((ranks for ranks, layer in layers if layer.expert_parameters), default=ep)
    findings.at_most(f"{field}.config.ep", ep, fewest)
