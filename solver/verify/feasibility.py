"""Constraints of a plan, checked on the document: config, node order, places, layers, shares.

Everything is compared with the instance in the same document, and that with what its target runs.
What needs costs (memory, limits on time and money) is in `solver.verify.plan_file`.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from formulations.instance.targets import TARGETS, outside
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
from formulations.space.slots import runs_order, slots_of, stage_places
from solver.document import PlanDocument
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
    for refusal in outside(target.rules(search.recompute_per), dict(search)):
        text = f"what the target {search.target} runs"
        findings.refuse(f"instance.search.{refusal.field}", refusal.value, text)


def check_config(space: PlanSpace, config: Configuration, findings: Findings) -> bool:
    """Whether the plan space of the instance has the configuration."""
    departure = space.departure(config)
    if departure is None:
        return True
    if departure.fields == ("nodes_used",):
        counts = [group.nodes for group in space.instance.cluster.groups]
        idle = f"{'up to' if space.instance.search.idle_nodes else 'all of'} {counts}"
        limit = space.instance.limits.max_price_usd_per_hour
        rent = "" if limit is None else f" for at most {limit} USD/h"
        findings.refuse("config.nodes_used", config.nodes_used, f"{idle} nodes per group{rent}")
        return False
    choices = (departure.values, *departure.allowed)
    values, *allowed = (repr(one[0] if len(one) == 1 else one) for one in choices)
    more = f" and {len(allowed) - EXAMPLES} more" if len(allowed) > EXAMPLES else ""
    text = f"one of {', '.join(allowed[:EXAMPLES])}{more}" if allowed else "none"
    field, before = ", ".join(departure.fields), ", ".join(departure.before)
    findings.refuse(f"config.{field}", values, f"{text}, with these {before}")
    return False


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
    findings.one_of(f"{field}.way", recomputed.way, ways)
    largest = 0 if recomputed.way == "none" else num_blocks
    first_alone = partly and recomputed.way == "full" and "none" in ways
    smallest = min(1, largest) if first_alone else largest
    fits = smallest <= recomputed.blocks <= largest
    text = f"{smallest} to {largest} blocks"
    findings.require(fits, f"{field}.blocks", recomputed.blocks, text)


#: Of every stage and replica.
Slots = list[list[tuple[Group, Degrees]]]


class _PlanCheck:
    """The constraints of a document with a plan of a configuration of its plan space."""

    def __init__(self, document: PlanDocument, config: Configuration, findings: Findings) -> None:
        self.document, self.config, self.findings = document, config, findings
        self.instance, self.replicas = document.instance, document.replicas
        self.cluster, self.search = self.instance.cluster, self.instance.search
        self.blocks = [layer.is_block for layer in self.instance.workload.layers]

    def order(self) -> tuple[int, ...]:
        """Node indices in order, exactly the nodes that the configuration uses, each once."""
        names, findings = self.document.node_order, self.findings
        number = {name: n for n, name in enumerate(self.cluster.node_names)}
        same = len(number) == len(self.cluster.node_names)
        text = "names that are all different"
        findings.require(same, "instance.cluster.groups", "equal names", text)
        for i, name in enumerate(names):
            field = f"node_order[{i}]"
            findings.require(name in number, field, repr(name), "a node of the cluster")
            findings.require(name not in names[:i], field, repr(name), "every node once")
        order = tuple(number[name] for name in names if name in number)
        counts = Counter(self.cluster.node_groups[node] for node in order)
        for j, (group, count) in enumerate(
            zip(self.cluster.groups, self.config.nodes_used, strict=True)
        ):
            text = f"{count}, as in config.nodes_used"
            field = f"node_order: nodes of {group.name}"
            findings.require(counts[j] == count, field, counts[j], text)
        findings.halt()
        return order

    def check_placement(self, order: Sequence[int]) -> None:
        """Replicas and stages are as many as the degrees say, and each on its slot's GPUs.

        Rank layout: slot k * dp + r, in node order, runs the virtual stages s of replica r with
        s mod pp = k. Nodes of a group may stand in any order: `slots_of` has them by number.
        """
        config, findings, num_replicas = self.config, self.findings, len(self.replicas)
        text = f"{config.dp}, as config.dp"
        findings.require(num_replicas == config.dp, "replicas", num_replicas, text)
        for r, replica in enumerate(self.replicas):
            count, text = len(replica.stages), f"{config.num_stages}, as config.pp * config.vpp"
            findings.require(count == config.num_stages, f"replicas[{r}].stages", count, text)
        findings.halt()
        groups = [self.cluster.node_groups[node] for node in order]
        slots = self._stage_slots() if config.per_stage else self._uniform_slots(groups)
        by_number = dict.fromkeys(group.node for row in slots for group, _ in row)
        stands = [self.cluster.node_groups[node] for node in by_number] == groups
        text = "nodes in the order of the stages on them"
        findings.require(stands, "node_order", self.document.node_order, text)
        findings.halt()
        name_of = dict(zip(by_number, self.document.node_order, strict=True))
        for r, replica in enumerate(self.replicas):
            for s, stage in enumerate(replica.stages):
                (group, degrees), field = slots[s % config.pp][r], f"replicas[{r}].stages[{s}]"
                findings.equal(f"{field}.node", stage.node, name_of[group.node])
                findings.equal(f"{field}.gpus", stage.gpus, group.gpus)
                findings.equal(f"{field}.degrees", stage.degrees, degrees)

    def _uniform_slots(self, groups: Sequence[int]) -> Slots:
        """Those of nodes of these groups in order, if the target runs such an order."""
        config, text = self.config, f"an order that the target {self.search.target} runs"
        runs = runs_order(self.instance, config, groups)
        self.findings.require(runs, "node_order", self.document.node_order, text)
        self.findings.halt()
        slots = slots_of_order(self.instance, config.degrees, groups)
        group_of = self.cluster.node_groups
        placed = [(slot, config.degrees[group_of[slot.node]]) for slot in slots]
        return [placed[k * config.dp :][: config.dp] for k in range(config.pp)]

    def _stage_slots(self) -> Slots:
        """Those of stages with degrees of their own, by node group and degrees of each."""
        findings, places = self.findings, stage_places(self.instance, self.config)
        group_of = dict(zip(self.cluster.node_names, self.cluster.node_groups, strict=True))
        stages, layout, gpus_left = self.replicas[0].stages, list[int](), 0
        for k, stage in enumerate(stages):
            j, field = group_of.get(stage.node), f"replicas[0].stages[{k}].degrees"
            allowed = [degrees for i, degrees in places if i == j]
            if findings.one_of(field, stage.degrees, allowed) and j is not None:
                # as layouts number them: behind the stage before if that has left GPUs of a node
                layout.append(2 * places.index((j, stage.degrees)) + (gpus_left > 0))
                taken = self.config.dp * stage.degrees.width
                size = self.cluster.groups[j].gpus_per_node
                gpus_left = gpus_left - taken if gpus_left else -taken % size
        findings.halt()
        slots = slots_of(ByPlace(self.instance, self.config, places), layout)
        if slots is None:
            text = "each on one node, or on whole nodes of a group, all GPUs taken in turn, as the"
            stated = [(stage.node, stage.degrees) for stage in stages]
            field = "replicas[:].stages[:].degrees"
            findings.refuse(field, stated, f"{text} target {self.search.target} runs")
        findings.halt()
        rows = zip(layout, slots or (), strict=True)
        return [[(slot, places[code // 2][1]) for slot in row] for code, row in rows]

    def check_layers(self) -> None:
        """Every replica holds all layers once, in order, in the split of the first."""
        num_layers, findings = len(self.blocks), self.findings
        fewest = 0 if self.search.embedding_only_stages else 1
        ends = [0, *(stage.layers[1] for stage in self.replicas[0].stages)]
        for r, replica in enumerate(self.replicas):
            for k, (stage, layers) in enumerate(zip(replica.stages, pairwise(ends), strict=True)):
                findings.equal(f"replicas[{r}].stages[{k}].layers", stage.layers, layers)
        for k, (begin, end) in enumerate(pairwise(ends)):
            field, inside = f"replicas[0].stages[{k}].layers", begin < end <= num_layers
            text = f"at least one of the layers up to {num_layers}"
            findings.require(inside, field, (begin, end), text)
            count = sum(self.blocks[begin:end])
            findings.require(count >= fewest, field, f"{count} blocks", f"at least {fewest}")
        findings.equal("replicas[0].stages: layers", ends[-1], num_layers)

    def check_shares(self) -> None:
        """The micro-batches of all replicas make one global batch."""
        counts, findings = [replica.micro_batches for replica in self.replicas], self.findings
        for r, count in enumerate(counts):
            field = f"replicas[{r}].micro_batches"
            findings.at_least(field, count, 1)
            if self.search.micro_batches == "even":
                findings.require(count == counts[0], field, count, f"{counts[0]}, as all others")
        field, batch = "replicas: micro_batches * config.micro_batch", self.config.micro_batch
        findings.equal(field, sum(counts) * batch, self.instance.workload.global_batch)

    def check_recomputation(self) -> None:
        """Stages recompute as their configuration allows, those of a device in one way."""
        config = self.config
        for r, replica in enumerate(self.replicas):
            ways_of = list[set[str]](set() for _ in range(config.pp))
            for s, stage in enumerate(replica.stages):
                field = f"replicas[{r}].stages[{s}].recomputed"
                num_blocks = sum(self.blocks[slice(*stage.layers)])
                # without blocks all would be alike
                allowed = config.recompute if num_blocks else config.recompute[:1]
                stated, partly = stage.recomputed, config.vpp == 1
                check_recomputed(stated, allowed, num_blocks, field, self.findings, partly)
                if num_blocks:
                    ways_of[s % config.pp].add(stage.recomputed.way)
            for k, ways in enumerate(map(sorted, ways_of)):
                field, alike = f"replicas[{r}].stages[{k}::{config.pp}].recomputed", len(ways) < 2
                self.findings.require(alike, field, ways, "one way for a device")


def checked_plan(space: PlanSpace, document: PlanDocument, findings: Findings) -> Plan | None:
    """The plan of a document with one; None if it breaks a constraint that its costs need."""
    config = document.config
    with findings.part():
        if config is None or not check_config(space, config, findings):
            return None
        check = _PlanCheck(document, config, findings)
        order = check.order()
        check.check_placement(order)
        findings.halt()
        check.check_layers()
        check.check_shares()
        findings.halt()
        check.check_recomputation()
        findings.halt()
        gpus = num_gpus(space.instance, config)
        findings.note(f"layout of {gpus} GPUs, layers and micro-batches")
        number = {name: n for n, name in enumerate(space.instance.cluster.node_names)}
        placed = tuple(replica.replica(number) for replica in document.replicas)
        return Plan(config=config, node_order=order, replicas=placed)
    return None
