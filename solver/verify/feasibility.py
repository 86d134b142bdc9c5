"""The constraints of a plan, checked on the document: shape, node order, placement, layers, shares.

Everything is compared with the instance in the same document, and that with what its target runs.
What needs costs (memory, limits on time and money) is in `solver.verify.plan_file`.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from formulations.instance import Instance
from formulations.instance.targets import TARGETS
from formulations.plan import Degrees, Plan, Shape, num_gpus
from formulations.space import PlanSpace
from formulations.space.slots import may_follow, runs_order, slot_degrees
from solver.document import PlanDocument, ReplicaDocument
from solver.verify.findings import Findings

#: Choices that are named one by one.
EXAMPLES = 8


def check_target(document: PlanDocument, findings: Findings) -> None:
    """The target that the document names is its instance's, whose plan space it can run.

    That the plan is of that space is checked elsewhere.
    """
    search, workload = document.instance.search, document.instance.workload
    findings.equal("target", document.target, search.target)
    target = TARGETS[search.target]
    for refusal in target.untrained(workload):
        text = f"what the target {search.target} trains"
        findings.refuse("instance.workload", f"{refusal.field} {refusal.value}", text)
    for field, rule in target.rules(search.recompute_per).items():
        value = getattr(search, field)
        values = value if isinstance(value, tuple) else (value,)
        free = field == "context_method" and set(search.context_parallel) == {1}
        runs = free or set(values) <= set(rule.allowed)
        text = f"what the target {search.target} runs"
        findings.require(runs, f"instance.search.{field}", value, text)


def check_shape(space: PlanSpace, shape: Shape, findings: Findings) -> bool:
    """Whether the plan space of the instance has the shape."""
    departure = space.departure(shape)
    if departure is None:
        return True
    if departure.fields == ("nodes_used",):
        findings.refuse("shape.nodes_used", shape.nodes_used, _nodes_rule(space))
        return False
    values, *allowed = map(_shown, (departure.values, *departure.allowed))
    more = f" and {len(allowed) - EXAMPLES} more" if len(allowed) > EXAMPLES else ""
    text = f"one of {', '.join(allowed[:EXAMPLES])}{more}" if allowed else "none"
    field, before = ", ".join(departure.fields), ", ".join(departure.before)
    findings.refuse(f"shape.{field}", values, f"{text}, with these {before}")
    return False


def _shown(values: tuple[object, ...]) -> str:
    return repr(values[0] if len(values) == 1 else values)


def _nodes_rule(space: PlanSpace) -> str:
    counts = [group.nodes for group in space.instance.cluster.groups]
    idle = f"{'up to' if space.instance.search.idle_nodes else 'all of'} {counts}"
    limit = space.instance.limits.max_price_usd_per_hour
    rent = "" if limit is None else f" for at most {limit} USD/h"
    return f"{idle} nodes per group{rent}"


def node_order(
    instance: Instance, shape: Shape, names: Sequence[str], findings: Findings
) -> tuple[int, ...] | None:
    """Node indices in order; None unless they are exactly the nodes that the shape uses."""
    cluster = instance.cluster
    number = {name: n for n, name in enumerate(cluster.node_names)}
    start = findings.num_problems
    text = "names that are all different"
    findings.require(
        len(number) == len(cluster.node_names), "instance.cluster.groups", "equal names", text
    )
    for i, name in enumerate(names):
        findings.require(name in number, f"node_order[{i}]", repr(name), "a node of the cluster")
        text = "every node once"
        findings.require(name not in names[:i], f"node_order[{i}]", repr(name), text)
    order = tuple(number[name] for name in names if name in number)
    counts = Counter(cluster.node_groups[node] for node in order)
    for j, group in enumerate(cluster.groups):
        text = f"{shape.nodes_used[j]}, as in shape.nodes_used"
        field = f"node_order: nodes of {group.name}"
        findings.require(counts[j] == shape.nodes_used[j], field, counts[j], text)
    return order if findings.num_problems == start else None


def _slots(
    instance: Instance, shape: Shape, order: Sequence[int]
) -> list[tuple[int, tuple[int, ...], Degrees]]:
    """Node, GPUs and degrees of every slot, in rank order."""
    cluster, found = instance.cluster, []
    for node in order:
        j = cluster.node_groups[node]
        own = shape.degrees[j]
        for first in range(0, cluster.groups[j].gpus_per_node, own.width):
            found.append((node, tuple(range(first, first + own.width)), own))
    return found


def check_placement(
    document: PlanDocument, shape: Shape, order: Sequence[int], findings: Findings
) -> bool:
    """Whether replicas and stages are as many as the degrees say, and each on its slot's GPUs.

    Rank layout: slot k * dp + r, in node order, runs the virtual stages s of replica r with
    s mod pp = k.
    """
    start = findings.num_problems
    text = f"{shape.dp}, as shape.dp"
    findings.require(len(document.replicas) == shape.dp, "replicas", len(document.replicas), text)
    for r, replica in enumerate(document.replicas):
        found = len(replica.stages)
        text = f"{shape.num_stages}, as shape.pp * shape.vpp"
        findings.require(found == shape.num_stages, f"replicas[{r}].stages", found, text)
    if findings.num_problems > start:
        return False
    if shape.per_stage:
        return check_stages(document, shape, order, findings)
    names = document.instance.cluster.node_names
    for slot, (node, gpus, degrees) in enumerate(_slots(document.instance, shape, order)):
        k, r = divmod(slot, shape.dp)
        for s in range(k, shape.num_stages, shape.pp):
            stage, field = document.replicas[r].stages[s], f"replicas[{r}].stages[{s}]"
            findings.equal(f"{field}.node", stage.node, names[node])
            findings.equal(f"{field}.gpus", stage.gpus, gpus)
            findings.equal(f"{field}.degrees", stage.degrees, degrees)
    return findings.num_problems == start


def check_stages(
    document: PlanDocument, shape: Shape, order: Sequence[int], findings: Findings
) -> bool:
    """Whether stages with degrees of their own take all GPUs in node order, replica by replica.

    All slots of a stage have the same degrees, and lie on one node or on whole nodes of one group.
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


def check_layers(
    instance: Instance, replicas: Sequence[ReplicaDocument], findings: Findings
) -> bool:
    """Whether every replica holds all layers once, in order, in the split of the first."""
    start = findings.num_problems
    length = len(instance.workload.layers)
    least = 0 if instance.search.embedding_only_stages else 1
    blocks = [layer.is_block for layer in instance.workload.layers]
    for r, replica in enumerate(replicas):
        ends = [0, *(stage.layers[1] for stage in replica.stages)]
        for k, (stage, (begin, end)) in enumerate(zip(replica.stages, pairwise(ends), strict=True)):
            field = f"replicas[{r}].stages[{k}].layers"
            findings.equal(field, stage.layers, (begin, end))
            inside = begin < end <= length
            text = f"at least one of the layers up to {length}"
            findings.require(inside, field, stage.layers, text)
            held = sum(blocks[begin:end])
            findings.require(held >= least, field, f"{held} blocks", f"at least {least}")
            same = stage.layers == replicas[0].stages[k].layers
            findings.require(same, field, stage.layers, "the same split in all replicas")
        findings.equal(f"replicas[{r}].stages: layers", ends[-1], length)
    return findings.num_problems == start


def check_recomputed(
    instance: Instance, shape: Shape, replicas: Sequence[ReplicaDocument], findings: Findings
) -> bool:
    """Whether stages recompute as their shape allows: first blocks only where they may do without.

    Of blocks that are not recomputed everything is kept. Stages that share a device recompute all
    their blocks in one way.
    """
    start = findings.num_problems
    blocks = [layer.is_block for layer in instance.workload.layers]
    for r, replica in enumerate(replicas):
        for s, stage in enumerate(replica.stages):
            field, found = f"replicas[{r}].stages[{s}].recomputed", stage.recomputed
            own = sum(blocks[slice(*stage.layers)])
            ways = shape.recompute if own else shape.recompute[:1]  # without blocks all are one
            text = f"one of {list(ways)}"
            findings.require(found.way in ways, f"{field}.way", found.way, text)
            partly = found.way == "full" and "none" in shape.recompute and shape.vpp == 1
            allowed = range(1, own + 1) if partly else [0 if found.way == "none" else own]
            text = f"{min(allowed, default=0)} to {max(allowed, default=0)} blocks"
            findings.require(found.blocks in allowed, f"{field}.blocks", found.blocks, text)
        for d in range(shape.pp):
            chunks = replica.stages[d :: shape.pp]
            known = {one.recomputed.way for one in chunks if any(blocks[slice(*one.layers)])}
            field = f"replicas[{r}].stages[{d}::{shape.pp}].recomputed"
            findings.require(len(known) < 2, field, sorted(known), "one way for a device")
    return findings.num_problems == start


def check_shares(
    instance: Instance, shape: Shape, replicas: Sequence[ReplicaDocument], findings: Findings
) -> bool:
    """Whether the micro-batches of all replicas make one global batch."""
    counts = [replica.micro_batches for replica in replicas]
    start = findings.num_problems
    for r, count in enumerate(counts):
        field = f"replicas[{r}].micro_batches"
        findings.require(count >= 1, field, count, "at least 1")
        if instance.search.micro_batches == "even":
            findings.require(count == counts[0], field, count, f"{counts[0]}, as all others")
    total = sum(counts) * shape.micro_batch
    field = "replicas: micro_batches * shape.micro_batch"
    findings.equal(field, total, instance.workload.global_batch)
    return findings.num_problems == start


def checked_plan(space: PlanSpace, document: PlanDocument, findings: Findings) -> Plan | None:
    """The plan of a document with one; None if it breaks a constraint that its costs need."""
    instance, shape = document.instance, document.shape
    if shape is None or not check_shape(space, shape, findings):
        return None
    order = node_order(instance, shape, document.node_order, findings)
    if order is None or not check_placement(document, shape, order, findings):
        return None
    groups = [instance.cluster.node_groups[node] for node in order]
    text = f"an order that the target {instance.search.target} runs"
    runs = runs_order(instance, shape, groups)
    if not findings.require(runs, "node_order", document.node_order, text):
        return None
    layers = check_layers(instance, document.replicas, findings)
    shares = check_shares(instance, shape, document.replicas, findings)
    recomputed = layers and check_recomputed(instance, shape, document.replicas, findings)
    if not recomputed or not shares:
        return None
    findings.note(f"layout of {num_gpus(instance, shape)} GPUs, layers and micro-batches")
    number = {name: n for n, name in enumerate(instance.cluster.node_names)}
    return Plan(
        shape=shape,
        node_order=order,
        replicas=tuple(replica.replica(number) for replica in document.replicas),
    )
