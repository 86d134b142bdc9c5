"""What a plan asks of whoever launches it, held against the rules of the launch targets."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from formulations.costs.context import context_methods
from formulations.errors import Fault
from formulations.instance import Instance, SearchSpace
from formulations.instance.search import ScheduleName, ZeroStage
from formulations.instance.targets import (
    LAUNCHERS,
    TARGETS,
    Demands,
    Launcher,
    Refusal,
    Target,
    as_written,
    outside,
)
from formulations.instance.workload import Recompute
from formulations.plan import PARAMETERS_SPLIT, STATES_SPLIT, Configuration, Plan
from formulations.space.slots import mesh_fault, runs_degrees


def decisions(instance: Instance, plan: Plan) -> dict[str, list[object]]:
    """Values of a plan, by the field of `search` that chooses them."""
    shares = {replica.micro_batches for replica in plan.replicas}
    recomputed = recomputed_blocks(instance, plan)
    ways = list(dict.fromkeys(way for way, _, _ in recomputed))
    stages = [stage for replica in plan.replicas for stage in replica.stages]
    # what has degrees of its own: nodes that have, one each, are as good as groups
    distinct, degrees = {stage.degrees for stage in stages}, "per_group"
    if len({(stage.group.node, stage.degrees) for stage in stages}) > len(plan.node_order):
        degrees = "per_stage"
    elif len(distinct) == 1 and not any(own.parts > 1 for own in distinct):
        degrees = "uniform"
    alike = len(ways) <= 1 and all(num in (0, blocks) for _, num, blocks in recomputed)
    return {
        "degrees": [degrees],
        "schedule": [plan.config.schedule],
        "microbatch_group": [plan.config.microbatch_group or "pp"],
        "context_parallel": [plan.config.cp],
        "context_method": list(dict.fromkeys(context_methods(instance, plan.config))),
        "expert_parallel": [plan.config.ep],
        "expert_tensor_parallel": [plan.config.etp or "tp"],
        "sync_each_batch": [plan.config.sync_each_batch],
        "optimizer_instances": [plan.config.optimizer_instances],
        "micro_batches": ["even" if len(shares) == 1 else "uneven"],
        "recompute_per": ["plan" if alike else "stage"],
        "recompute": [*ways],
        "embedding_only_stages": [len(recomputed) < len(stages)],
    }


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


def obstacles(instance: Instance, plan: Plan, target: str) -> list[Fault]:
    """What of a plan one of `LAUNCHERS` cannot run, and what to write for one that it can."""
    launcher, decided = LAUNCHERS[target], decisions(instance, plan)
    untrained = list(launcher.untrained(instance.workload))
    # what rules about single fields of `search` exclude, then those about several
    rules = launcher.rules(decided["recompute_per"][0])
    if target == "megatron" and first_blocks(instance, plan) is not None:
        del rules["recompute_per"]  # its method `block`
    demands = _demands(instance, plan.config, plan.config.zero)
    refused = [*outside(rules, decided), *_unlike(instance, plan, target)]
    refused += launcher.refused(instance.workload, demands)
    barring = []
    for refusal in (*untrained, *refused):
        allowed = " or ".join(map(str, refusal.instead))
        change = f"search.{refusal.field}: {allowed}"
        if refusal in untrained:
            change = f"a workload with {refusal.field}: {allowed}"
        elif target in TARGETS:  # a search for it has nothing else
            change = f"search.target: {target}"
        barring.append(_obstacle(refusal, launcher, f"{change}, and solve again"))
    return barring


def model_obstacles(instance: Instance, target: str) -> list[Fault]:
    """What of a model one of `LAUNCHERS` does not build itself; none of one that was counted."""
    launcher, sizes = LAUNCHERS[target], instance.workload.sizes
    change = "--own-model, and a model of yours"
    refusals = [] if sizes is None else launcher.unbuilt(sizes)
    return [_obstacle(refusal, launcher, change) for refusal in refusals]


def _obstacle(refusal: Refusal, launcher: Launcher, change: str) -> Fault:
    named = f"{refusal.field}: {as_written(refusal.value)}"
    return Fault(f"{named} is not for {launcher.name}, {refusal.reason}", change)


def _unlike(instance: Instance, plan: Plan, target: str) -> list[Refusal]:
    """Stages of FlagScale have the same degrees in all replicas; unlike ones fit each other."""
    stages = list(zip(*(replica.stages for replica in plan.replicas), strict=True))
    first = [column[0].degrees for column in stages]
    if target != "flagscale" or len({stage.degrees for column in stages for stage in column}) == 1:
        return []
    reasons = [
        mesh_fault(instance, plan.config.zero, first[0], degrees, last=k + 1 == len(first))
        for k, degrees in enumerate(first)
    ]
    if any(len({stage.degrees for stage in column}) > 1 for column in stages):
        reasons.insert(0, "whose stages have equal degrees in all replicas")
    distinct = dict.fromkeys(reason for reason in reasons if reason)
    return [Refusal("degrees", "per_group", reason) for reason in distinct]


def _demands(instance: Instance, config: Configuration, zero: int) -> Demands:
    return Demands(
        tensor_parallel=config.widest_tp,
        pipeline_parallel=config.pp,
        context_parallel=config.cp,
        expert_parallel=config.ep,
        expert_tensor_parallel=config.etp or "tp",
        zero=zero,
        copied=config.has_copies,
        sequence_parallel=all(
            instance.splits_sequence(degrees.tp) for degrees in config.degrees_used
        ),
    )


def zero_choices(instance: Instance, config: Configuration) -> list[ZeroStage]:
    """ZeRO stages with which a config is in the plan space, whichever it has; none: it is not.

    2 and 3 exchange gradients with every micro-batch, see `formulations.costs.sharding`: they need
    equally many in every replica, and a pipeline of one stage. Where no tensor has copies all
    stages that the target runs are the same plan: the least stands for them.
    """
    search, target = instance.search, TARGETS[instance.search.target]
    if "context_method" in target.search:
        methods = context_methods(instance, config)
        if not all(target.allows("context_method", method) for method in methods):
            return []
    exchanges = config.pp == 1 and search.micro_batches == "even"
    highest = PARAMETERS_SPLIT if exchanges else STATES_SPLIT
    demands = _demands(instance, config, zero=0)
    stages = [
        zero
        for zero in sorted(search.zero)
        if zero <= highest
        and not any(target.refused(instance.workload, demands._replace(zero=zero)))
        and runs_degrees(instance, config, zero)  # on some node order
    ]
    return stages if demands.copied else stages[:1]


def sync_choices(instance: Instance, config: Configuration) -> Sequence[bool]:
    """The `sync_each_batch` that a config may have: ZeRO 3 may keep gradients of several.

    Where none are kept from one micro-batch to another, true stands for both.
    """
    several = instance.workload.global_batch > config.dp * config.micro_batch
    keeps = config.splits.parameters and config.has_copies and several
    return instance.search.sync_each_batch if keeps else [True]


def shard_choices(instance: Instance, config: Configuration) -> Iterator[int]:
    """Shard groups that a config may have: its `optimizer_instances`.

    Several need two replicas each, that fill nodes or share a node with whole groups, on nodes of
    equally many equal slots in one zone, and experts that lie as all else does.
    """
    for number in instance.search.optimizer_instances:
        if number == 1 or _has_shard_groups(instance, config, number):
            yield number


def _has_shard_groups(instance: Instance, config: Configuration, number: int) -> bool:
    groups, (size, rest) = instance.cluster.groups, divmod(config.dp, number)
    if not config.zero or rest or size == 1 or config.has_expert_grid:
        return False
    slots = {
        (slot, groups[j].gpus_per_node // slot.width, groups[j].zone)
        for j, slot in zip(config.groups_used, config.degrees_used, strict=False)
    }
    if len(slots) != 1:  # none where stages have their own degrees
        return False
    [(_, per_node, _)] = slots
    return size % per_node == 0 or per_node % size == 0


#: All values of the fields that rules are about, the widest last where there is one value.
_VALUES: dict[str, tuple[object, ...]] = {
    "degrees": ("uniform", "per_group"),  # each stage its own takes longer to search
    "schedule": get_args(ScheduleName),
    "micro_batches": ("even", "uneven"),
    "recompute": ("none", "selective", "full"),
    "recompute_per": ("plan", "stage"),
    "zero": get_args(ZeroStage),
}


def runs(target: Target, search: SearchSpace) -> bool:
    """Whether a target can run all values of a plan space, each in some plan."""
    return not any(outside(TARGETS[target].rules(search.recompute_per), dict(search)))


def widened(instance: Instance, target: Target) -> list[dict[str, object]]:
    """What another target would add to a plan space: fields with their wider values.

    Only what the search's own target forbids: what it allows, the user left out; without what the
    other target cannot run. Uneven micro-batches stand alone, as they exclude much of the rest.
    Empty where it adds nothing, or cannot train the model so.
    """
    search, present = instance.search, TARGETS[instance.search.target]
    if any(TARGETS[target].untrained(instance.workload)):
        return []
    changed = {
        field: value
        for field in _VALUES
        # without scores to recompute, selective recomputation would change nothing
        if not (field == "recompute" and instance.workload.flash_attention)
        and (value := _chosen(search, field, TARGETS[target])) != getattr(search, field)
    }
    uneven = []
    if changed.pop("micro_batches", None) == "uneven":
        kept = tuple(value for value in search.schedule if value != "interleaved") or ("1f1b",)
        alone: dict[str, object] = {"micro_batches": "uneven"}
        alone |= {field: value for field, value in changed.items() if field == "recompute_per"}
        uneven = [alone | ({"schedule": kept} if kept != search.schedule else {})]
    return [*uneven, changed] if any(outside(present.rules(), changed)) else uneven


def _chosen(search: SearchSpace, field: str, launcher: Launcher) -> Any:
    """A field of a plan space as another target would have it, see `widened`."""
    stated, present = getattr(search, field), TARGETS[search.target]
    possible = tuple(value for value in _VALUES[field] if launcher.allows(field, value))
    new = tuple(value for value in possible if not present.allows(field, value))
    if isinstance(stated, tuple):
        return tuple(value for value in possible if value in stated or value in new) or possible
    return new[-1] if new else stated if stated in possible else possible[-1]


def able(instance: Instance, plan: Plan) -> list[Target]:
    """The targets, but `any`, that can launch a plan."""
    concrete = (target for target in TARGETS if target != "any")
    return [target for target in concrete if not obstacles(instance, plan, target)]
