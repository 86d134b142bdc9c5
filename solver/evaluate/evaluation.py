"""A run judged: as a plan, against the best one, and decision by decision.

Each decision of the best plan is put into the plan that is run, alone: what brings most?
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, pairwise

from formulations.decisions import Decisions, decisions_of
from formulations.errors import InstanceError, PlanError
from formulations.instance import Instance
from formulations.lengths.problem import Order
from formulations.lengths.row_times import instance_of_rows
from formulations.plan import Configuration, Plan, simulable
from formulations.space import PlanSpace
from formulations.units import seconds
from solver.document import PlanDocument
from solver.evaluate.launched import block_boundaries
from solver.evaluate.run_plan import Planned, judged, settled
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from solver.files import fields_of
from solver.lengths.candidates import Candidates
from solver.lengths.choose import build_lengths, check_limits, choose
from solver.lengths_document import LengthsDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.report.naming import chunks_text, experts_text, shards_text
from solver.result import Answer, Evaluation, Result, Status, by_saving
from solver.search.driver import solve
from solver.search.plan_search import Report
from solver.verify import Effort, verify_document


def predicted(planned: Planned) -> tuple[PlanDocument, Evaluation]:
    """The plan file of a run, and which limits it breaks. Raises PlanError for what is no plan."""
    result = judged(planned.instance, planned.plan)
    document, broken, faults = checked(result)
    if faults:
        raise PlanError(planned.run.source, faults[0], "a plan that verify accepts")
    assert result.objective is not None
    return document, Evaluation(result.objective, broken)


def compared(
    planned: Planned, alone: Evaluation, options: SolveOptions, progress: Report | None = None
) -> Evaluation:
    """The same with the best plan in the run's settings, and what each decision would bring.

    Most saved first; what is no plan is not told, nor what Ctrl-C leaves no time for.
    """
    best, plans = solve(planned.instance, options, progress), dict[Answer, Plan]()
    with suppress(KeyboardInterrupt):
        for name, change in _changes(planned, best.plan) if best.plan is not None else ():
            plan = _plan(change)
            if plan is not None and plan != planned.plan:
                plans |= _answers(name, planned.instance, plan, alone.objective)
        if best.plan is not None and planned.instance != planned.space:
            name = "overlap and sequence parallelism of the instance, its way to share sequences"
            plans |= _answers(name, planned.space, planned.plan, alone.objective)
    answers, settings = by_saving(plans), tuple[str, ...]()
    if answers and (answers[0].saves_at_least or 0.0) > 0:
        settings = changed_settings(planned, plans[answers[0]])
    return Evaluation(alone.objective, alone.broken, best, tuple(answers), settings)


def changed_settings(planned: Planned, plan: Plan) -> tuple[str, ...]:
    """Lines of the run's launch file that a changed plan writes otherwise; () without a file."""
    if planned.run.target == "any":
        return ()
    exporter = EXPORTERS[planned.run.target]
    texts = list[list[str]]()
    for each in (planned.plan, plan):
        job = Job(planned.instance.on(each.config.nodes_used), each).with_own_model
        if exporter.faults(job):
            return ()
        text = next(iter(exporter.files(job).values()))  # the first file is the framework's
        texts.append([line.strip() for line in text.splitlines() if not line.startswith("#")])
    return tuple(line for line in texts[1] if line not in texts[0])


#: Limits that a plan may break and yet be run, or tried to.
_LIMITS = re.compile(r"(replicas\[\d+\]\.stages\[\d+\]\.memory_bytes|instance\.limits\.\w+): ")


def checked(result: Result) -> tuple[PlanDocument, tuple[str, ...], tuple[str, ...]]:
    """The plan file, which limits the plan breaks, and what else is wrong with it."""
    document = build_document(result, SolveOptions())
    problems = verify_document(document, Effort(prove="nothing")).problems
    broken = tuple(problem for problem in problems if _LIMITS.match(problem))
    return document, broken, tuple(problem for problem in problems if not _LIMITS.match(problem))


def _answers(
    name: str, instance: Instance, plan: Plan, objective: float
) -> Iterator[tuple[Answer, Plan]]:
    """The plan, judged; nothing where it is outside the plan space."""
    result = judged(instance, plan)
    _, broken, faults = checked(result)
    if faults or result.objective is None or result.step_time_ns is None:
        return
    step_s = seconds(result.step_time_ns)
    if broken:
        yield Answer(name, Status.INFEASIBLE, step_s), plan
    else:
        saved = 1 - result.objective / objective if objective else 0.0
        yield Answer(name, Status.FEASIBLE, step_s, saved, saved), plan


#: Fields of a configuration that go together, as they fill nodes; and as they order a step.
_DEGREES = ("degrees", "dp", "pp", "ep", "etp", "nodes_used")
_SCHEDULING = ("schedule", "vpp", "microbatch_group")


def _changes(planned: Planned, best: Plan) -> Iterator[tuple[str, Planned]]:
    config, target, theirs = planned.config, best.config, decisions_of(planned.space, best)

    def taking(*fields: str) -> Planned:
        return _filled(replace(planned, config=_taking(config, target, fields)), theirs)

    if sorted(planned.order) == sorted(theirs.order):
        name = f"node order {_hosts(planned.space, theirs.order)}"
        yield name, replace(planned, order=theirs.order)
    if config.num_stages == target.num_stages:
        blocks = [layer.is_block for layer in planned.space.workload.layers]
        split = "/".join(str(sum(blocks[a:b])) for a, b in pairwise(theirs.boundaries))
        yield f"split {split} blocks", replace(planned, boundaries=theirs.boundaries)
    if not target.per_stage:
        yield _with_degrees(planned, target, theirs)
    if (target.ep, target.etp) != (config.ep, config.etp):
        yield experts_text(target), taking("ep", "etp")
    yield f"micro-batches of {target.micro_batch}", taking("micro_batch")
    yield _schedule(target), taking(*_SCHEDULING)
    ways = dict.fromkeys(stage.recomputed.way for rep in best.replicas for stage in rep.stages)
    recomputing = replace(taking("recompute"), recomputes_least=True)
    yield f"recomputation {' and '.join(ways)}", recomputing
    yield shards_text(target), taking("zero", "sync_each_batch", "optimizer_instances")


def _taking(config: Configuration, target: Configuration, fields: Sequence[str]) -> Configuration:
    return config.model_copy(update=fields_of(target, *fields))


def _with_degrees(
    planned: Planned, target: Configuration, theirs: Decisions
) -> tuple[str, Planned]:
    """Degrees and nodes of the best plan.

    What cannot run with them, the schedule first, then the micro-batch, is the best plan's.
    """
    changed = _taking(planned.config, target, _DEGREES)
    sizes = dict.fromkeys(str(degrees.tp * degrees.parts) for degrees in target.degrees_used)
    context = f" x context {target.cp}" if planned.config.cp * target.cp > 1 else ""
    name = f"tensor {' and '.join(sizes)}{context} x data {target.dp} x pipeline {target.pp}"
    if planned.config.has_expert_grid or target.has_expert_grid:
        name += f", {experts_text(target)}"
    alike = target.nodes_used == planned.config.nodes_used
    order = planned.order if alike else theirs.order
    name += "" if alike else f", nodes {_hosts(planned.space, order)}"
    sizes_text = f"micro-batches of {target.micro_batch}"
    for fields, text in ((_SCHEDULING, _schedule(target)), (("micro_batch",), sizes_text)):
        if not _runs(planned, settled(planned.space, changed, planned.run.recompute)):
            changed, name = _taking(changed, target, fields), f"{name}, {text}"
    return name, _filled(replace(planned, config=changed, order=order), theirs)


def _schedule(target: Configuration) -> str:
    chunks = f" with {chunks_text(target)}" if target.vpp > 1 else ""
    return f"schedule {target.schedule}{chunks}"


def _filled(planned: Planned, theirs: Decisions) -> Planned:
    """With the own split where it has as many stages, else the best plan's, else an even one."""
    stages = planned.config.num_stages
    for boundaries in (planned.boundaries, theirs.boundaries):
        if len(boundaries) == stages + 1:
            return replace(planned, boundaries=boundaries)
    each, rest = divmod(planned.space.workload.num_blocks, stages)
    even = [each + (k < rest) for k in range(stages)]
    return replace(planned, boundaries=block_boundaries(planned.space, even))


def _hosts(instance: Instance, order: Sequence[int]) -> str:
    """Node groups as the option of the command line takes them: small,big*2."""
    names = [group.name for group in instance.cluster.groups]
    runs = ((names[j], sum(1 for _ in run)) for j, run in groupby(order))
    return ",".join(f"{name}*{number}" if number > 1 else name for name, number in runs)


def _runs(planned: Planned, config: Configuration) -> bool:
    """Whether the plan space has such a configuration, whose steps can be simulated."""
    inside = PlanSpace(planned.instance).departure(config) is None
    return inside and simulable(planned.instance, config)


def _plan(change: Planned) -> Plan | None:
    """The changed plan; None where there is no such plan."""
    config, boundaries = change.config, change.boundaries
    if not change.recomputes_least:
        config = settled(change.space, config, change.run.recompute)
    if not _runs(change, config) or any(a >= b for a, b in pairwise(boundaries)):
        return None
    try:
        return replace(change, config=config).plan
    except InstanceError:  # a profile without such layers
        return None


def row_plans(instance: Instance, candidates: Candidates) -> list[PlanDocument]:
    """[strategy] of a step of mixed lengths, as plan files, of rows as long as it takes.

    None where strategies were measured.
    """
    plans = candidates.plans or ()
    pairs = zip(candidates.mixed.strategies, plans, strict=bool(plans))
    rows = ((instance_of_rows(instance, plan, q.longest), plan) for q, plan in pairs)
    return [build_document(judged(*pair), SolveOptions()) for pair in rows]


def lengths_document(
    instance: Instance, candidates: Candidates, order: Order, options: SolveOptions
) -> LengthsDocument:
    """The step of mixed lengths that a search chooses, sealed, with plans of its strategies.

    Raises NoPlanError where there is none, or none within the limits of the instance.
    """
    chosen = choose(candidates.mixed, order, options)
    check_limits(instance, chosen)
    plans, name = row_plans(instance, candidates), instance.workload.name
    return build_lengths(chosen, name, instance, plans, candidates.above)


def row_file_name(strategy: str) -> str:
    """Of the plan of a strategy, as `dp-4-tp-8-pp-1.json`."""
    return f"{re.sub(r'[^a-z0-9]+', '-', strategy.lower())}.json"
