"""A run judged: as a plan, against the best one, and decision by decision.

Each decision of the best plan is put into the plan that is run, alone: what brings most?
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import build_tables
from formulations.decisions import Decisions, decisions_of, even_shares
from formulations.errors import InstanceError, PlanError
from formulations.instance import Instance
from formulations.plan import Plan, Shape, simulable, uniform_plan
from formulations.space import expert_degrees, schedules_of
from solver.comparison import Answer, Evaluation
from solver.document import PlanDocument
from solver.evaluate.launched import block_boundaries, num_blocks
from solver.evaluate.run_plan import Planned, as_run, judged, settled
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.report.naming import experts_text
from solver.result import Result, Status
from solver.verify import Effort, verify_document

Solve = Callable[[Instance, SolveOptions], Result]


def predicted(own: Planned) -> tuple[PlanDocument, Evaluation]:
    """The plan file of a run, and which limits it breaks. Raises PlanError for what is no plan."""
    result = judged(own.instance, own.plan)
    document, broken, others = checked(result)
    if others:
        raise PlanError(own.run.source, others[0], "a plan that verify accepts")
    assert result.objective is not None
    return document, Evaluation(result.objective, broken)


def compared(own: Planned, alone: Evaluation, options: SolveOptions, solve: Solve) -> Evaluation:
    """The same with the best plan in the run's settings, and what each decision would bring."""
    best = solve(own.instance, options)
    changes: tuple[Answer, ...] = ()
    if best.plan is not None:
        with suppress(KeyboardInterrupt):
            changes = tuple(single_changes(own, alone.objective, best.plan))
    return Evaluation(alone.objective, alone.broken, best, changes)


#: Limits that a plan may break and yet be run, or tried to.
_LIMITS = re.compile(r"(replicas\[\d+\]\.stages\[\d+\]\.memory_bytes|instance\.limits\.\w+): ")


def checked(result: Result) -> tuple[PlanDocument, tuple[str, ...], tuple[str, ...]]:
    """The plan file, which limits the plan breaks, and what else is wrong with it."""
    document = build_document(result, SolveOptions())
    problems = verify_document(document, Effort(prove="nothing")).problems
    broken = tuple(one for one in problems if _LIMITS.match(one))
    return document, broken, tuple(one for one in problems if not _LIMITS.match(one))


_SETTINGS = "overlap and sequence parallelism of the instance, its way to share sequences"


@dataclass(frozen=True)
class _Change:
    """A plan: what differs in words, its shape, its order and its layer boundaries.

    best: does every stage recompute as the best plan's would?
    """

    name: str
    shape: Shape
    order: tuple[int, ...]
    boundaries: tuple[int, ...]
    best: bool = False


def single_changes(own: Planned, objective: float, best: Plan) -> list[Answer]:
    """Each decision of the best plan in the own one, most saved first; what is no plan is not told.

    objective: of the own plan.
    """
    found: list[Answer] = []
    for change in _changes(own, best):
        plan = _plan(own, change)
        if plan is not None and plan != own.plan:
            found += _answers(change.name, own.instance, plan, objective)
    if own.instance != own.space:
        found += _answers(_SETTINGS, own.space, own.plan, objective)
    return sorted(found, key=lambda one: (one.least is None, -(one.least or 0.0)))


def _answers(name: str, instance: Instance, plan: Plan, objective: float) -> Iterator[Answer]:
    """The plan, judged; nothing where it is outside the plan space."""
    result = judged(instance, plan)
    _, broken, others = checked(result)
    if others or result.objective is None or result.step_time_ns is None:
        return
    step_s = result.step_time_ns / 1e9
    saved = 1 - result.objective / objective if objective else 0.0
    if broken:
        yield Answer(name, Status.INFEASIBLE, step_s)
    else:
        yield Answer(name, Status.FEASIBLE, step_s, saved, saved)


def _changes(own: Planned, best: Plan) -> Iterator[_Change]:
    shape, other, theirs = own.shape, best.shape, decisions_of(own.space, best)
    plain = _Change("", shape, own.order, own.run.boundaries)
    names = [group.name for group in own.space.cluster.groups]
    if sorted(own.order) == sorted(theirs.order):
        yield replace(plain, name=f"node order {_hosts(names, theirs.order)}", order=theirs.order)
    if shape.num_stages == other.num_stages:
        blocks = _blocks(own.space, theirs.boundaries)
        yield replace(plain, name=f"split {blocks} blocks", boundaries=theirs.boundaries)
    if not other.per_stage:
        yield _with_degrees(own, other, theirs)
    if (other.ep, other.etp) != (shape.ep, shape.etp):
        experts = _set(shape, ep=other.ep, etp=other.etp)
        yield replace(plain, name=experts_text(other), shape=experts)
    size = other.micro_batch
    yield replace(plain, name=f"micro-batches of {size}", shape=_set(shape, micro_batch=size))
    schedule = _scheduled(shape, other)
    cuts = _boundaries(own, schedule, theirs)
    yield replace(plain, name=_schedule(other), shape=schedule, boundaries=cuts)
    ways = _set(shape, recompute=other.recompute)
    yield replace(plain, name=f"recomputation {_ways(best)}", shape=ways, best=True)
    yield replace(plain, name=f"ZeRO {other.zero}", shape=_set(shape, zero=other.zero))


def _with_degrees(own: Planned, other: Shape, theirs: Decisions) -> _Change:
    """Degrees and nodes go together: they fill each other.

    What cannot run with them, the schedule first, then the micro-batch, is the best plan's.
    """
    changed = _set(
        own.shape,
        degrees=other.degrees,
        dp=other.dp,
        pp=other.pp,
        ep=other.ep,
        etp=other.etp,
        nodes_used=other.nodes_used,
    )
    alike = other.nodes_used == own.shape.nodes_used
    names = [group.name for group in own.space.cluster.groups]
    idle = "" if alike else f", nodes {_hosts(names, theirs.order)}"
    sizes = " and ".join(dict.fromkeys(str(one.tp * one.parts) for one in other.degrees_used))
    context = f" x context {other.cp}" if own.shape.cp * other.cp > 1 else ""
    name = f"tensor {sizes}{context} x data {other.dp} x pipeline {other.pp}{_experts(own, other)}"
    name += idle
    if not _runs(own, changed):
        changed, name = _scheduled(changed, other), f"{name}, {_schedule(other)}"
    if not _runs(own, changed):
        changed = _set(changed, micro_batch=other.micro_batch)
        name += f", micro-batches of {other.micro_batch}"
    order = own.order if alike else theirs.order
    return _Change(name, changed, order, _boundaries(own, changed, theirs))


def _experts(own: Planned, other: Shape) -> str:
    """Where one of the two shares experts."""
    shares = own.shape.has_expert_grid or other.has_expert_grid
    return f", {experts_text(other)}" if shares else ""


def _scheduled(shape: Shape, other: Shape) -> Shape:
    return _set(shape, schedule=other.schedule, vpp=other.vpp)


def _schedule(other: Shape) -> str:
    chunks = f" with {other.vpp} chunks per GPU" if other.vpp > 1 else ""
    return f"schedule {other.schedule}{chunks}"


def _set(shape: Shape, **fields: object) -> Shape:
    return shape.model_copy(update=fields)


def _boundaries(own: Planned, shape: Shape, theirs: Decisions) -> tuple[int, ...]:
    """The own split where it has as many stages, else the best plan's, else an even one."""
    stages = shape.num_stages
    for known in (own.run.boundaries, theirs.boundaries):
        if len(known) == stages + 1:
            return known
    each, rest = divmod(num_blocks(own.space), stages)
    return block_boundaries(own.space, [each + (k < rest) for k in range(stages)])


def _hosts(names: Sequence[str], order: Sequence[int]) -> str:
    """Node groups as the option of the command line takes them: small,big*2."""
    runs = ((names[j], sum(1 for _ in run)) for j, run in groupby(order))
    return ",".join(f"{name}*{number}" if number > 1 else name for name, number in runs)


def _blocks(instance: Instance, boundaries: Sequence[int]) -> str:
    """Blocks of each stage: 5/7/7/5."""
    blocks = [layer.is_block for layer in instance.workload.layers]
    return "/".join(str(sum(blocks[a:b])) for a, b in pairwise(boundaries))


def _ways(best: Plan) -> str:
    ways = dict.fromkeys(one.recomputed.way for rep in best.replicas for one in rep.stages)
    return " and ".join(ways)


def _runs(own: Planned, shape: Shape) -> bool:
    """Whether replicas can share the batch evenly, and run the schedule with what they get."""
    share, rest = divmod(own.space.workload.global_batch, shape.micro_batch * shape.dp)
    launched = schedules_of(own.space, shape.pp, share)
    possible = share > 0 and not rest and (shape.schedule, shape.vpp) in launched
    shared = expert_degrees(own.instance, shape.degrees, shape.dp, shape.nodes_used)
    possible &= (shape.ep, shape.etp) in shared
    return possible and simulable(own.instance, shape)


def _plan(own: Planned, change: _Change) -> Plan | None:
    """The changed plan; None where there is no such plan."""
    instance = own.instance
    shape = change.shape if change.best else settled(own.space, change.shape, own.run.recompute)
    if not _runs(own, shape):
        return None
    if any(a >= b for a, b in pairwise(change.boundaries)):
        return None
    try:
        tables = build_tables(instance, shape)
    except InstanceError:  # a profile without such layers
        return None
    choose = StageCosts(tables).recomputed if change.best else as_run(tables, own.run)
    shares = even_shares(tables)
    return uniform_plan(instance, shape, change.order, change.boundaries, shares, choose)
