"""What a plan asks of whoever launches it, held against the rules of the launch targets."""

from collections import Counter
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import get_args

from formulations.costs.context import context_methods
from formulations.instance import Instance, SearchSpace
from formulations.instance.search import RECOMPUTE_WAYS, DegreesPer, ScheduleName, ZeroStage
from formulations.instance.target import (
    RULES,
    TARGET_NAMES,
    Sharing,
    Target,
    allows,
    launchers,
    least_zero,
    most_stages,
    shares,
    trainers,
    untrained,
    zero_stages,
)
from formulations.instance.workload import ExpertSplit, Recompute, Workload
from formulations.plan import PARAMETERS_SPLIT, STATES_SPLIT, Degrees, Plan, Shape
from formulations.slot_degrees import limits_orders, may_follow, mesh_fault


@dataclass(frozen=True)
class Obstacle:
    """A decision of a plan that a target cannot run: the field of `search`, its value, and why.

    Or what it cannot train: a field of `workload`, with the values to write instead.
    """

    field: str
    value: object
    reason: str
    others: tuple[Target, ...]  #: that can
    instead: tuple[object, ...] = ()  #: none: a search for the target has others

    def found(self, target: Target) -> str:
        """What stands in the way."""
        value = str(self.value).lower() if isinstance(self.value, bool) else self.value
        return f"{self.field}: {value} is not for {TARGET_NAMES[target]}, {self.reason}"

    def change(self, target: Target) -> str:
        """What to write for a plan that the target can run."""
        words = " or ".join(map(str, self.instead))
        instead = f"a workload with {self.field}: {words}" if words else f"search.target: {target}"
        return f"{instead}, and solve again"


def decisions(instance: Instance, plan: Plan) -> dict[str, list[object]]:
    """Values of a plan, by the field of `search` that chooses them."""
    shares = {replica.micro_batches for replica in plan.replicas}
    recomputed = recomputed_blocks(instance, plan)
    ways = list(dict.fromkeys(way for way, _, _ in recomputed))
    num_stages = sum(len(replica.stages) for replica in plan.replicas)
    alike = len(ways) <= 1 and all(num in (0, blocks) for _, num, blocks in recomputed)
    return {
        "degrees": [_degrees_per(plan)],
        "schedule": [plan.shape.schedule],
        "context_parallel": [plan.shape.cp],
        "context_method": list(dict.fromkeys(context_methods(instance, plan.shape))),
        "expert_parallel": [plan.shape.ep],
        "expert_tensor_parallel": [plan.shape.etp or "tp"],
        "micro_batches": ["even" if len(shares) == 1 else "uneven"],
        "recompute_per": ["plan" if alike else "stage"],
        "recompute": [*ways],
        "embedding_only_stages": [len(recomputed) < num_stages],
    }


def _degrees_per(plan: Plan) -> DegreesPer:
    """What has degrees of its own; nodes that have, one each, are as good as groups."""
    stages = [stage for replica in plan.replicas for stage in replica.stages]
    distinct = {stage.degrees for stage in stages}
    if len({(stage.group.node, stage.degrees) for stage in stages}) > len(plan.node_order):
        return "per_stage"
    alike = len(distinct) == 1 and not any(degrees.parts > 1 for degrees in distinct)
    return "uniform" if alike else "per_group"


def recomputed_blocks(instance: Instance, plan: Plan) -> list[tuple[Recompute, int, int]]:
    """Way, recomputed blocks and all blocks of every stage that has any, replica by replica."""
    blocks = [layer.is_block for layer in instance.workload.layers]
    stages = [stage for replica in plan.replicas for stage in replica.stages]
    counted = [(stage.recomputed, sum(blocks[slice(*stage.layers)])) for stage in stages]
    return [(recomputed.way, recomputed.blocks, count) for recomputed, count in counted if count]


def first_blocks(instance: Instance, plan: Plan) -> int | None:
    """The n where every stage recomputes its first n blocks fully, or all; None where not alike."""
    recomputed = recomputed_blocks(instance, plan)
    largest = max((num for _, num, _ in recomputed), default=0)
    alike = all(way == "full" and num == min(largest, count) for way, num, count in recomputed)
    return largest if alike else None


def obstacles(instance: Instance, plan: Plan, target: Target) -> list[Obstacle]:
    """The decisions of a plan that a target cannot run; none where it can launch it."""
    decided = decisions(instance, plan)
    if decided["recompute_per"] == ["plan"] and target == "flagscale":
        del decided["recompute"]  # where all stages are alike it recomputes as Megatron-LM does
    if target == "megatron" and first_blocks(instance, plan) is not None:
        del decided["recompute_per"]  # its method `block`
    barred = [
        Obstacle(field, value, RULES[target][field].reason, tuple(launchers(field, value)))
        for field, values in decided.items()
        for value in values
        if not allows(target, field, value)
    ]
    return [
        *_untrained(instance.workload, target),
        *barred,
        *_meshes(instance, plan, target),
        *_zero(instance.workload, plan.shape, target),
        *_shares(instance, plan.shape, target),
        *_stages(instance.workload, plan.shape, target),
    ]


def zero_choices(instance: Instance, shape: Shape) -> list[ZeroStage]:
    """ZeRO stages with which a shape is in the plan space, whichever it has; none: it is not.

    2 and 3 exchange gradients with every micro-batch, see `formulations.costs.sharding`: they need
    equally many in every replica, and a pipeline of one stage. Where no tensor has copies all
    stages that the target runs are the same plan: the least stands for them.
    """
    search = instance.search
    exchanges = shape.pp == 1 and search.micro_batches == "even"
    highest = PARAMETERS_SPLIT if exchanges else STATES_SPLIT
    choices = sorted(zero for zero in search.zero if zero <= highest)
    stages = [zero for zero in choices if _runs(instance, shape, zero)]
    return stages if shape.has_copies else stages[:1]


def _runs(instance: Instance, shape: Shape, zero: ZeroStage) -> bool:
    """Whether the target of an instance can run a shape, with a ZeRO stage, on some node order."""
    target, state = instance.search.target, instance.workload.optimizer_state
    if zero < least_zero(target, state):
        return False
    if shape.has_copies and zero not in zero_stages(target, shape.pp):
        return False
    shared = shares(target, instance.workload, _sharing(instance, shape, zero)) is None
    if RULES[target].get("context_method"):
        shared &= all(allows(target, "context_method", m) for m in context_methods(instance, shape))
    return shared and _runs_degrees(instance, shape, zero)


def _runs_degrees(instance: Instance, shape: Shape, zero: ZeroStage) -> bool:
    """Whether the target can run the degrees of node groups in some order of the nodes.

    Nodes of equal degrees make whole stages. The first and the last stage have degrees that go
    together: equal ones on nodes in two places, where fewer than all of them make whole stages.
    Of nodes with unlike numbers of slots that is taken for granted.
    """
    if not limits_orders(instance, shape):
        return True
    nodes: dict[Degrees, Counter[int]] = {}  # by slots of a node
    groups = zip(instance.cluster.groups, shape.degrees, shape.nodes_used, strict=True)
    for group, degrees, count in groups:
        if count:
            nodes.setdefault(degrees, Counter())[group.gpus_per_node // degrees.width] += count
    if any(sum(size * n for size, n in sizes.items()) % shape.dp for sizes in nodes.values()):
        return False
    parted = {
        degrees
        for degrees, sizes in nodes.items()
        if len(sizes) > 1 or any(n > shape.dp // gcd(shape.dp, size) for size, n in sizes.items())
    }
    pairs = [*product(nodes, repeat=2)]
    ends = ((a, b) for a, b in pairs if a != b or a in parted)
    inside = all(may_follow(instance, zero, a, b, last=False) for a, b in pairs)
    return inside and any(may_follow(instance, zero, a, b, last=True) for a, b in ends)


def _untrained(workload: Workload, target: Target) -> list[Obstacle]:
    """What no plan changes."""
    return [
        Obstacle(field, value, rule.reason, tuple(trainers(field, value)), rule.allowed)
        for field, value, rule in untrained(target, workload)
    ]


def _meshes(instance: Instance, plan: Plan, target: Target) -> list[Obstacle]:
    """Stages of FlagScale have the same degrees in all replicas; unlike ones fit each other."""
    stages = list(zip(*(replica.stages for replica in plan.replicas), strict=True))
    first = [column[0].degrees for column in stages]
    if target != "flagscale" or len({stage.degrees for column in stages for stage in column}) == 1:
        return []
    reasons = [
        mesh_fault(instance, plan.shape.zero, first[0], degrees, k + 1 == len(first))
        for k, degrees in enumerate(first)
    ]
    if any(len({stage.degrees for stage in column}) > 1 for column in stages):
        reasons.insert(0, "whose stages have equal degrees in all replicas")
    distinct = dict.fromkeys(reason for reason in reasons if reason)
    return [Obstacle("degrees", "per_group", reason, ("any",)) for reason in distinct]


def _zero(workload: Workload, shape: Shape, target: Target) -> list[Obstacle]:
    lowest = least_zero(target, workload.optimizer_state)
    if shape.zero < lowest:
        able = tuple(name for name in RULES if not least_zero(name, workload.optimizer_state))
        reason = "whose optimizer with states in bf16 is distributed"
        return [Obstacle("zero", shape.zero, reason, able)]
    if not shape.has_copies or shape.zero in zero_stages(target, shape.pp):
        return []
    able = tuple(name for name in RULES if shape.zero in zero_stages(name, shape.pp))
    stages = " and ".join(map(str, zero_stages(target, shape.pp)))
    count = "one stage" if shape.pp == 1 else "several stages"
    return [Obstacle("zero", shape.zero, f"which runs {stages} with {count}", able)]


def _sharing(instance: Instance, shape: Shape, zero: ZeroStage) -> Sharing:
    split, sharded = instance.search.sequence_parallel, zero > 0 or not shape.has_copies
    etp: ExpertSplit = shape.etp or "tp"
    return Sharing(shape.widest_tp, shape.cp, shape.ep, sharded, split, etp)


def _shares(instance: Instance, shape: Shape, target: Target) -> list[Obstacle]:
    """Experts and sequences that GPUs share as the target cannot."""
    workload, sharing = instance.workload, _sharing(instance, shape, shape.zero)
    fault = shares(target, workload, sharing)
    if fault is None:
        return []
    field, reason = fault
    value = getattr(sharing, _FIELDS[field])
    able = (name for name in launchers(field, value) if shares(name, workload, sharing) is None)
    return [Obstacle(field, value, reason, tuple(able))]


_FIELDS = {
    "expert_parallel": "ep",
    "expert_tensor_parallel": "etp",
    "context_parallel": "cp",
    "sequence_parallel": "sequence_parallel",
}


def _stages(workload: Workload, shape: Shape, target: Target) -> list[Obstacle]:
    limit = most_stages(target, workload)
    if limit is None or shape.pp <= limit:
        return []
    able = tuple(name for name in RULES if most_stages(name, workload) is None)
    kept = "tied embeddings" if workload.tied_embeddings else "multi-token prediction"
    return [Obstacle("pipeline_parallel", shape.pp, f"which keeps {kept} in one stage", able)]


#: All values of the fields that rules are about, the widest last where there is one value.
_VALUES: dict[str, tuple[object, ...]] = {
    "degrees": ("uniform", "per_group"),  # each stage its own takes longer to search
    "schedule": get_args(ScheduleName),
    "micro_batches": ("even", "uneven"),
    "recompute": RECOMPUTE_WAYS,
    "recompute_per": ("plan", "stage"),
    "zero": get_args(ZeroStage),
}


def runs(target: Target, search: SearchSpace) -> bool:
    """Whether a target can run all values of a plan space, each in some plan."""
    return not any(
        not allows(target, field, value)
        for field in _VALUES
        if not (target == "flagscale" and field == "recompute" and search.recompute_per == "plan")
        for value in _listed(getattr(search, field))
    )


def widened(instance: Instance, target: Target) -> list[dict[str, object]]:
    """What another target would add to a plan space: fields with their wider values.

    Only what the search's own target forbids: what it allows, the user left out; without what the
    other target cannot run. Uneven micro-batches stand alone, as they exclude much of the rest.
    Empty where it adds nothing, or cannot train the model so.
    """
    search = instance.search
    if any(untrained(target, instance.workload)):
        return []
    wider = {
        field: _chosen(search, field, target)
        for field in _VALUES
        # without scores to recompute, selective recomputation would change nothing
        if not (field == "recompute" and instance.workload.flash_attention)
    }
    changed = {field: value for field, value in wider.items() if value != getattr(search, field)}
    uneven = []
    if changed.pop("micro_batches", None) == "uneven":
        kept = tuple(value for value in search.schedule if value != "interleaved") or ("1f1b",)
        alone: dict[str, object] = {"micro_batches": "uneven"}
        alone |= {field: value for field, value in changed.items() if field == "recompute_per"}
        uneven = [alone | ({"schedule": kept} if kept != search.schedule else {})]
    if all(
        allows(search.target, field, v) for field, value in changed.items() for v in _listed(value)
    ):
        return uneven
    return [*uneven, changed]


def _chosen(search: SearchSpace, field: str, target: Target) -> object:
    """A field of a plan space as another target would have it, see `widened`."""
    stated = getattr(search, field)
    run = tuple(value for value in _VALUES[field] if allows(target, field, value))
    new = tuple(value for value in run if not allows(search.target, field, value))
    if isinstance(stated, tuple):
        return tuple(value for value in run if value in stated or value in new) or run
    return new[-1] if new else stated if stated in run else run[-1]


def _listed(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def able(instance: Instance, plan: Plan) -> list[Target]:
    """The targets, but `any`, that can launch a plan."""
    concrete = (target for target in RULES if target != "any")
    return [target for target in concrete if not obstacles(instance, plan, target)]
