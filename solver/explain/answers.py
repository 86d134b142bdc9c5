"""What each change brings: the changed instance solved again, with its proof."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic

from formulations.costs.plan_costs import plan_costs
from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.launch import obstacles, recomputed_blocks
from formulations.plan import Degrees, Plan, Replica, Shape
from formulations.space import may_use, shapes_of
from solver.comparison import Answer
from solver.explain.what_ifs import WhatIf, what_ifs
from solver.options import SolveOptions
from solver.result import Status, max_step_time_ns, objective_weight
from solver.search.driver import solve
from solver.simulate import step_time_ns


def answers(
    instance: Instance, plan: Plan, options: SolveOptions, tell: Callable[[int, int], None]
) -> Iterator[Answer]:
    """Every change of an instance, solved within an equal share of the time that is left.

    A search starts from the plan that is explained, where that stays possible. After Ctrl-C there
    are no more.
    """
    objective = step_time_ns(plan_costs(instance, plan)) * objective_weight(instance, plan.shape)
    changes = list(what_ifs(instance))
    start_s, limit_s = monotonic(), options.time_limit_s
    for i, change in enumerate(changes):
        tell(i, len(changes))
        left_s = None if limit_s is None else max(0.0, start_s + limit_s - monotonic())
        share_s = None if left_s is None else left_s / (len(changes) - i)
        start = kept(plan, instance, change.instance)
        try:
            result = solve(change.instance, replace(options, time_limit_s=share_s), start=start)
        except PlannerError:  # too large a plan space, or one that has no costs
            yield _answer(change, instance, objective, start, None)
            continue
        best = None
        if result.plan is not None and result.step_time_ns is not None:
            best = result.plan, result.step_time_ns
        answer = _answer(change, instance, objective, best, result.bound)
        yield replace(answer, status=result.status)
        if result.termination == "interrupted":
            return


def _answer(
    change: WhatIf,
    instance: Instance,
    objective: float,
    best: tuple[Plan, int] | None,
    bound: float | None,
) -> Answer:
    """What the best plan of a change saves, with its step time in ns, and what any may save."""
    if best is None:
        return Answer(change.change, Status.UNKNOWN)
    before, after = (each.workload.global_batch for each in (instance, change.instance))
    value = best[1] * objective_weight(change.instance, best[0].shape)
    least, most = (
        None if total is None else 1 - total / objective * before / after
        for total in (value, bound)
    )
    return Answer(change.change, Status.FEASIBLE, best[1] / 1e9, least, most)


def kept(plan: Plan, instance: Instance, changed: Instance) -> tuple[Plan, int] | None:
    """A plan of an instance in a changed one, and its step time there in ns; None: it is not.

    On the same nodes, with the same groups and layers; replicas share another batch as they shared
    the first.
    """
    old, groups = instance.cluster, {group.name: group for group in changed.cluster.groups}
    used = {
        group.name: count for group, count in zip(old.groups, plan.shape.nodes_used, strict=True)
    }
    if any(count and name not in groups for name, count in used.items()):
        return None
    vector = tuple(used.get(name, 0) for name in groups)
    shape = _shape_of(plan, instance, changed, vector)
    if shape is None:
        return None
    moved = _moved(plan, instance, changed, shape)
    even = changed.search.micro_batches == "even"
    shares = {replica.micro_batches for replica in moved.replicas}
    sequences = shape.micro_batch * sum(replica.micro_batches for replica in moved.replicas)
    if sequences != changed.workload.global_batch or (even and len(shares) > 1):
        return None
    if obstacles(changed, moved, changed.search.target):
        return None
    costs = plan_costs(changed, moved)
    time_ns, longest_ns = step_time_ns(costs), max_step_time_ns(changed, shape)
    fits = bool((costs.memory_bytes <= costs.limit_bytes).all())
    return (moved, time_ns) if fits and time_ns <= (longest_ns or time_ns) else None


def _shape_of(
    plan: Plan, instance: Instance, changed: Instance, vector: tuple[int, ...]
) -> Shape | None:
    """The shape of a plan as the changed plan space names it; None where that has none."""
    planned, search = plan.shape, changed.search
    pinned = {
        "data_parallel": (planned.dp,),
        "pipeline_parallel": (planned.pp,),
        "micro_batch": (planned.micro_batch,),
        "context_parallel": (planned.cp,),
        "expert_parallel": (planned.ep,),
    }
    allowed = all({*pin} <= {*(getattr(search, field) or pin)} for field, pin in pinned.items())
    if not allowed or not may_use(changed, vector):
        return None
    degrees = _by_name(instance, planned)
    ways = {stage.recomputed.way for replica in plan.replicas for stage in replica.stages}
    if any(blocks < of_stage for way, blocks, of_stage in recomputed_blocks(instance, plan)):
        ways |= {"none"}  # some of a stage's blocks are not recomputed
    few = changed.model_copy(update={"search": search.model_copy(update=pinned)})
    for shape in shapes_of(few, vector):
        update = {name: getattr(shape, name) for name in ("degrees", "nodes_used", "recompute")}
        alike = shape == planned.model_copy(update=update)
        if alike and ways <= {*shape.recompute} and degrees == _by_name(changed, shape):
            return shape
    return None


def _by_name(instance: Instance, shape: Shape) -> dict[str, Degrees]:
    """Degrees of the node groups used; none where every stage has its own."""
    if shape.per_stage:
        return {}
    rows = zip(instance.cluster.groups, shape.degrees, shape.nodes_used, strict=True)
    return {group.name: degrees for group, degrees, count in rows if count}


def _moved(plan: Plan, instance: Instance, changed: Instance, shape: Shape) -> Plan:
    """The plan on the nodes of the same names, with as large a part of the batch per replica."""
    number = {name: n for n, name in enumerate(changed.cluster.node_names)}
    names = instance.cluster.node_names
    before, after = (each.workload.global_batch for each in (instance, changed))

    def moved(replica: Replica) -> Replica:
        stages = (
            stage.but(group=stage.group.but(node=number[names[stage.group.node]]))
            for stage in replica.stages
        )
        return Replica(micro_batches=replica.micro_batches * after // before, stages=tuple(stages))

    order = tuple(number[names[node]] for node in plan.node_order)
    return Plan(shape=shape, node_order=order, replicas=tuple(map(moved, plan.replicas)))
