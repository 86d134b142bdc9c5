"""All checks of one switch file: what moves, that all of it arrives once, times and bound.

What moves from plan to plan, the port bound and the published rule are those of
`formulations.switching`; none of the planner's choices is believed.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from formulations.instance import Cluster, Workload
from formulations.plan import Plan
from formulations.switching.shards import SliceClass, layout_of
from formulations.switching.switch import Sending, Switch, by_node, switch_of
from solver.switch_document import (
    KINDS,
    ClassDocument,
    SwitchDocument,
    gpu_names,
    switch_figures,
)
from solver.verify.cascade import Effort
from solver.verify.findings import Findings, Verification, verification


def verify_switch(document: SwitchDocument, _: Effort | None = None) -> Verification:
    """Checks that everything arrives once from where it is, and all figures.

    Uses no code of the planner. Never raises for a document that could be read.
    """
    return verification(document, lambda findings: _check_content(document, findings))


def _check_content(document: SwitchDocument, findings: Findings) -> None:
    cluster, names = document.cluster, document.cluster.node_names
    findings.equal("cluster: names of nodes", len(set(names)), len(names))
    for name, plan in (("before", document.before), ("after", document.after)):
        _check_plan(document.workload, cluster, plan, name, findings)
    findings.halt()
    before, after = (layout_of(cluster, plan) for plan in (document.before, document.after))
    switch = switch_of(cluster, document.workload, before, after, KINDS[document.moves])
    slices = [written.slices for written in document.classes]
    same = slices == [defined.slices for defined in switch.classes]
    text = "those into which both plans cut what moves"
    findings.require(same, "classes: slices", "others", text)
    findings.halt()
    number = {name: n for n, name in enumerate(gpu_names(cluster))}
    sendings = list[Sending]()
    for n, (written, defined) in enumerate(zip(document.classes, switch.classes, strict=True)):
        sendings += _sendings(n, written, defined, switch, number, findings)
    findings.halt()
    findings.note(f"every part arrives once: {len(document.classes)} classes of slices")
    for field, expected in switch_figures(cluster, switch, sendings).items():
        findings.equal(field, getattr(document, field), expected)
    findings.note("time of the busiest port or link, what no plan goes below, the published rule")


def _sendings(
    n: int,
    written: ClassDocument,
    defined: SliceClass,
    switch: Switch,
    number: dict[str, int],
    findings: Findings,
) -> Iterator[Sending]:
    """The sendings of a class by numbers of GPUs; each needer gets every byte once, from owners."""
    field, node_of = f"classes[{n}]", switch.network.node_of
    received: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for i, way in enumerate(written.sendings):
        where, named = f"{field}.sendings[{i}]", {*way.receivers, way.source, way.via or way.source}
        unknown = sorted(named - number.keys())
        if not findings.require(not unknown, where, unknown, "GPUs of the cluster, NODE:NUMBER"):
            continue
        source, receivers = number[way.source], [number[gpu] for gpu in way.receivers]
        owner = source in defined.owners
        findings.require(owner, f"{where}.source", way.source, "a GPU that holds the class")
        once = len(set(receivers)) == len(receivers)
        findings.require(once, f"{where}.receivers", way.receivers, "GPUs once each")
        via = None if way.via is None else number[way.via]
        nodes = by_node(receivers, node_of)
        forwards = via is None or (via in receivers and len(nodes) == 1)
        findings.require(forwards, f"{where}.via", way.via, "a receiver, of the node of all")
        for gpu in receivers:
            received[gpu].append((way.begin, way.end))
        for gpus in nodes.values():
            yield Sending(n, way.begin, way.end, source, via, tuple(gpus))
    names = [name for name, gpu in number.items() if gpu in received]
    needers = set(received) == set(defined.needers)
    findings.require(needers, f"{field}: receivers", names, "all GPUs that lack it, no others")
    for gpu, ranges in received.items():
        edges = [(0, 0), *sorted(ranges), (defined.size_bytes, defined.size_bytes)]
        covered = all(low[1] == high[0] for low, high in pairwise(edges))
        covered &= all(begin < end for begin, end in ranges)
        findings.require(
            covered, f"{field}: bytes to GPU {gpu}", ranges, "every byte of the class once"
        )


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
