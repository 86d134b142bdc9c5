"""Constraints of a plan, checked on the document: config, node order, places, layers, shares.

Everything is compared with the instance in the same document, and that with what its target runs.
What needs costs (memory, limits on time and money) is in `solver.verify.plan_file`.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from formulations.instance import Instance
from formulations.instance.targets import TARGETS
from formulations.plan import (
    ByPlace,
    Configuration,
    Degrees,
    Group,
    Plan,
    Recomputed,
    num_gpus,
    slots_of_order,
)
from formulations.space import PlanSpace
from formulations.space.layouts import slots_of
from formulations.space.slots import runs_order, stage_places
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


def check_config(space: PlanSpace, config: Configuration, findings: Findings) -> bool:
    """Whether the plan space of the instance has the configuration."""
    departure = space.departure(config)
    if departure is None:
        return True
    if departure.fields == ("nodes_used",):
        findings.refuse("config.nodes_used", config.nodes_used, _nodes_rule(space))
        return False
    values, *allowed = map(_shown, (departure.values, *departure.allowed))
    more = f" and {len(allowed) - EXAMPLES} more" if len(allowed) > EXAMPLES else ""
    text = f"one of {', '.join(allowed[:EXAMPLES])}{more}" if allowed else "none"
    field, before = ", ".join(departure.fields), ", ".join(departure.before)
    findings.refuse(f"config.{field}", values, f"{text}, with these {before}")
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
    instance: Instance, config: Configuration, names: Sequence[str], findings: Findings
) -> tuple[int, ...] | None:
    """Node indices in order; None unless they are exactly the nodes that the configuration uses."""
    cluster, problems = instance.cluster, findings.num_problems
    number = {name: n for n, name in enumerate(cluster.node_names)}
    same = len(number) == len(cluster.node_names)
    text = "names that are all different"
    findings.require(same, "instance.cluster.groups", "equal names", text)
    for i, name in enumerate(names):
        findings.require(name in number, f"node_order[{i}]", repr(name), "a node of the cluster")
        once = name not in names[:i]
        findings.require(once, f"node_order[{i}]", repr(name), "every node once")
    order = tuple(number[name] for name in names if name in number)
    counts = Counter(cluster.node_groups[node] for node in order)
    for j, group in enumerate(cluster.groups):
        text = f"{config.nodes_used[j]}, as in config.nodes_used"
        field = f"node_order: nodes of {group.name}"
        findings.require(counts[j] == config.nodes_used[j], field, counts[j], text)
    return order if findings.num_problems == problems else None


def check_placement(
    document: PlanDocument, config: Configuration, order: Sequence[int], findings: Findings
) -> bool:
    """Whether replicas and stages are as many as the degrees say, and each on its slot's GPUs.

    Rank layout: slot k * dp + r, in node order, runs the virtual stages s of replica r with
    s mod pp = k. Nodes of a group may stand in any order: `slots_of` has them by number.
    """
    problems, cluster = findings.num_problems, document.instance.cluster
    text = f"{config.dp}, as config.dp"
    findings.require(len(document.replicas) == config.dp, "replicas", len(document.replicas), text)
    for r, replica in enumerate(document.replicas):
        count, text = (
            len(replica.stages),
            f"{config.num_stages}, as config.pp * config.vpp",
        )
        findings.require(count == config.num_stages, f"replicas[{r}].stages", count, text)
    if findings.num_problems > problems:
        return False
    groups = [cluster.node_groups[node] for node in order]
    layout = _stage_slots if config.per_stage else _uniform_slots
    slots = layout(document, config, groups, findings)
    if slots is None:
        return False
    by_number = dict.fromkeys(group.node for row in slots for group, _ in row)
    stands = [cluster.node_groups[node] for node in by_number] == groups
    text = "nodes in the order of the stages on them"
    if not findings.require(stands, "node_order", document.node_order, text):
        return False
    name_of = {n: cluster.node_names[node] for n, node in zip(by_number, order, strict=True)}
    for r, replica in enumerate(document.replicas):
        for s, stage in enumerate(replica.stages):
            (group, degrees), field = slots[s % config.pp][r], f"replicas[{r}].stages[{s}]"
            findings.equal(f"{field}.node", stage.node, name_of[group.node])
            findings.equal(f"{field}.gpus", stage.gpus, group.gpus)
            findings.equal(f"{field}.degrees", stage.degrees, degrees)
    return findings.num_problems == problems


#: Of every stage and replica.
Slots = list[list[tuple[Group, Degrees]]]


def _uniform_slots(
    document: PlanDocument, config: Configuration, groups: Sequence[int], findings: Findings
) -> Slots | None:
    """Those of nodes of these groups in order; None if the target runs no such order."""
    instance = document.instance
    text = f"an order that the target {instance.search.target} runs"
    runs = runs_order(instance, config, groups)
    if not findings.require(runs, "node_order", document.node_order, text):
        return None
    slots = slots_of_order(instance, config.degrees, groups)
    group_of = instance.cluster.node_groups
    placed = [(slot, config.degrees[group_of[slot.node]]) for slot in slots]
    return [placed[k * config.dp :][: config.dp] for k in range(config.pp)]


def _stage_slots(
    document: PlanDocument, config: Configuration, _: Sequence[int], findings: Findings
) -> Slots | None:
    """Those of stages with degrees of their own, by node group and degrees of each."""
    instance, problems = document.instance, findings.num_problems
    cluster, places = instance.cluster, stage_places(instance, config)
    group_of = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
    stages, layout, gpus_left = document.replicas[0].stages, list[int](), 0
    for k, stage in enumerate(stages):
        j, field = group_of.get(stage.node), f"replicas[0].stages[{k}].degrees"
        text = f"one of {[degrees for i, degrees in places if i == j]}"
        if (
            findings.require((j, stage.degrees) in places, field, stage.degrees, text)
            and j is not None
        ):
            # as `layouts` numbers them: behind the stage before if that has left GPUs of a node
            layout.append(2 * places.index((j, stage.degrees)) + (gpus_left > 0))
            taken, size = config.dp * stage.degrees.width, cluster.groups[j].gpus_per_node
            gpus_left = gpus_left - taken if gpus_left else -taken % size
    if findings.num_problems > problems:
        return None
    slots = slots_of(ByPlace(instance, config, places), layout)
    if slots is None:
        text = (
            "each on one node, or on whole nodes of a group, all GPUs taken in turn, as the target"
        )
        stated = [(stage.node, stage.degrees) for stage in stages]
        field = "replicas[:].stages[:].degrees"
        findings.refuse(field, stated, f"{text} {instance.search.target} runs")
        return None
    rows = zip(layout, slots, strict=True)
    return [[(slot, places[code // 2][1]) for slot in row] for code, row in rows]


def check_layers(
    instance: Instance, replicas: Sequence[ReplicaDocument], findings: Findings
) -> bool:
    """Whether every replica holds all layers once, in order, in the split of the first."""
    problems, num_layers = findings.num_problems, len(instance.workload.layers)
    fewest = 0 if instance.search.embedding_only_stages else 1
    blocks = [layer.is_block for layer in instance.workload.layers]
    ends = [0, *(stage.layers[1] for stage in replicas[0].stages)]
    for r, replica in enumerate(replicas):
        for k, (stage, layers) in enumerate(zip(replica.stages, pairwise(ends), strict=True)):
            findings.equal(f"replicas[{r}].stages[{k}].layers", stage.layers, layers)
    for k, (begin, end) in enumerate(pairwise(ends)):
        field, inside = f"replicas[0].stages[{k}].layers", begin < end <= num_layers
        text = f"at least one of the layers up to {num_layers}"
        findings.require(inside, field, (begin, end), text)
        num_blocks = sum(blocks[begin:end])
        enough = num_blocks >= fewest
        findings.require(enough, field, f"{num_blocks} blocks", f"at least {fewest}")
    findings.equal("replicas[0].stages: layers", ends[-1], num_layers)
    return findings.num_problems == problems


def check_recomputed(
    recomputed: Recomputed,
    ways: Sequence[str],
    num_blocks: int,
    field: str,
    findings: Findings,
    partly: bool = True,
) -> None:
    """Whether a stage recomputes in one of these ways: all its blocks, or the first of them.

    The first alone only fully, where none need be, and only `partly`. Of other blocks everything
    is kept.
    """
    text = f"one of {list(ways)}"
    findings.require(recomputed.way in ways, f"{field}.way", recomputed.way, text)
    largest = 0 if recomputed.way == "none" else num_blocks
    first_alone = partly and recomputed.way == "full" and "none" in ways
    smallest = min(1, largest) if first_alone else largest
    fits = smallest <= recomputed.blocks <= largest
    text = f"{smallest} to {largest} blocks"
    findings.require(fits, f"{field}.blocks", recomputed.blocks, text)


def _check_devices(
    instance: Instance,
    config: Configuration,
    replicas: Sequence[ReplicaDocument],
    findings: Findings,
) -> bool:
    """Whether all stages recompute as their configuration allows, those of a device in one way."""
    problems = findings.num_problems
    blocks = [layer.is_block for layer in instance.workload.layers]
    for r, replica in enumerate(replicas):
        ways_of = list[set[str]](set() for _ in range(config.pp))
        for s, stage in enumerate(replica.stages):
            field, num_blocks = (
                f"replicas[{r}].stages[{s}].recomputed",
                sum(blocks[slice(*stage.layers)]),
            )
            ways = config.recompute if num_blocks else config.recompute[:1]  # all would be alike
            partly = config.vpp == 1
            check_recomputed(stage.recomputed, ways, num_blocks, field, findings, partly)
            if num_blocks:
                ways_of[s % config.pp].add(stage.recomputed.way)
        for k, device_ways in enumerate(ways_of):
            field = f"replicas[{r}].stages[{k}::{config.pp}].recomputed"
            alike = len(device_ways) < 2
            findings.require(alike, field, sorted(device_ways), "one way for a device")
    return findings.num_problems == problems


def check_shares(
    instance: Instance,
    config: Configuration,
    replicas: Sequence[ReplicaDocument],
    findings: Findings,
) -> bool:
    """Whether the micro-batches of all replicas make one global batch."""
    counts, problems = [replica.micro_batches for replica in replicas], findings.num_problems
    for r, count in enumerate(counts):
        field = f"replicas[{r}].micro_batches"
        findings.require(count >= 1, field, count, "at least 1")
        if instance.search.micro_batches == "even":
            findings.require(count == counts[0], field, count, f"{counts[0]}, as all others")
    field = "replicas: micro_batches * config.micro_batch"
    findings.equal(field, sum(counts) * config.micro_batch, instance.workload.global_batch)
    return findings.num_problems == problems


def checked_plan(space: PlanSpace, document: PlanDocument, findings: Findings) -> Plan | None:
    """The plan of a document with one; None if it breaks a constraint that its costs need."""
    instance, config, replicas = document.instance, document.config, document.replicas
    if config is None or not check_config(space, config, findings):
        return None
    order = node_order(instance, config, document.node_order, findings)
    if order is None or not check_placement(document, config, order, findings):
        return None
    layers = check_layers(instance, replicas, findings)
    shares = check_shares(instance, config, replicas, findings)
    if not layers or not _check_devices(instance, config, replicas, findings) or not shares:
        return None
    findings.note(f"layout of {num_gpus(instance, config)} GPUs, layers and micro-batches")
    number = {name: n for n, name in enumerate(instance.cluster.node_names)}
    placed = tuple(replica.replica(number) for replica in replicas)
    return Plan(config=config, node_order=order, replicas=placed)
