"""A plan in words and tables. Returns what Rich can render; only the command line prints it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType

from formulations.costs.plan_costs import PlanCosts
from formulations.instance import Instance, SearchSpace, Workload
from formulations.instance.search import DegreesPer, ScheduleName
from formulations.instance.target import TARGET_NAMES
from formulations.instance.workload import Recompute
from formulations.launch import able
from formulations.plan import Shape, num_gpus
from solver.document import PlanDocument
from solver.report.assumptions import (
    assumptions,
    calibration_lines,
    cost_without_flash,
    evidence_lines,
    renting_lines,
)
from solver.report.critical import busy_share, summary
from solver.report.document import costs_of, plan_of
from solver.report.layout import Labelled, Lines, labelled
from solver.report.naming import by_group, degrees_of, experts_text, layers_text, tensor_text
from solver.report.quantities import (
    counted,
    money,
    node_ranges,
    percent,
    significant,
    time_text,
)
from solver.report.stages import (
    memory_table,
    placement_table,
    stage_table,
    tightest,
    traffic_table,
    zone_lines,
)
from solver.report.step import text_timeline
from solver.result import Infeasibility, OtherTarget
from solver.simulate import Step, simulate_step

_RECOMPUTED: dict[Recompute, str] = {
    "none": "no recomputation",
    "selective": "selective recomputation",
    "full": "full recomputation",
}
_STATUS = {
    "optimal": "optimal for {}: proved that no plan is better",
    "feasible": "feasible: a plan, not proved to be the best",
    "infeasible": "infeasible: proved that there is no plan for {}",
    "unknown": "unknown: no plan found, and no proof that there is none",
}
_TERMINATION = {
    "closed": "every shape is closed",
    "time_limit": "the time limit was reached",
    "interrupted": "interrupted",
    "unfinished": "some shapes could not be closed",
    "heuristic": "a heuristic, which proves nothing",
    "given": "the plan was given",
}
_MOST_RUNS = 8  # of equal layers, that are listed one by one
_SCHEDULES: dict[ScheduleName, str] = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "interleaved 1F1B",
    "zb-h1": "ZB-H1",
}
_SOURCES = {
    "measured": "measured",
    "interpolated": "interpolated between measurements",
    "scaled": "scaled beyond the measured micro-batch sizes",
    "analytic": "analytic model",
    "corrected": "corrected by measured steps",
}


def chain_text(workload: Workload) -> str:
    """The layers by name: "E embedding, 0-23 block, H head"; of many runs the numbers."""
    if len(workload.layer_runs) > _MOST_RUNS:
        kinds = Counter(layer.kind for layer in workload.layers)
        return ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    runs = groupby(enumerate(workload.layers), key=lambda item: item[1].kind)
    named = ((layers_text(workload, (n for n, _ in layers)), kind) for kind, layers in runs)
    return ", ".join(f"{layers} {kind}" for layers, kind in named)


def cluster_text(instance: Instance) -> str:
    """Nodes and GPUs by group: "1 node of 4 A100-40, 3 nodes of 4 A10 in zone east"."""
    return ", ".join(
        f"{counted(g.nodes, 'node')} of {g.gpus_per_node} {g.gpu.name}"
        + (f" in zone {g.zone}" if g.zone else "")
        for g in instance.cluster.groups
    )


def workload_text(workload: Workload) -> str:
    """Name, size and batch."""
    return (
        f"{workload.name}: {significant(workload.parameters / 1e6)} million parameters, "
        f"{counted(workload.global_batch, 'sequence')} of {workload.sequence_length:,} tokens "
        "per step"
    )


def lengths_lines(instance: Instance) -> Lines:
    """That a plan leaves the lengths of sequences out of account, where an instance says them."""
    if instance.lengths is None:
        return []
    taken = f"all sequences as {instance.workload.sequence_length:,} tokens"
    return [("lengths", f"not looked at: {taken}; the command lengths does")]


def _recompute_text(document: PlanDocument) -> str:
    """What the stages of a plan recompute, in words."""
    found = {stage.recomputed.way for one in document.replicas for stage in one.stages}
    if len(found) > 1:
        return "recomputation where memory asks for it"
    return _RECOMPUTED[found.pop()]


_DEGREES: dict[DegreesPer, str] = {
    "uniform": "uniform degrees",
    "per_group": "degrees per node group",
    "per_stage": "degrees per stage",
}


def shape_text(document: PlanDocument, shape: Shape) -> str:
    """Degrees and memory strategy in words."""
    recompute = _recompute_text(document)
    zero = f", ZeRO {shape.zero}" if shape.zero else ""
    degrees = degrees_of(document)
    grouped = any(own.tp > 1 for own in degrees)
    sequence_parallel = document.instance.search.sequence_parallel and grouped
    split = ", sequence parallel" if sequence_parallel else ""
    chunks = f", {shape.vpp} chunks per GPU," if shape.vpp > 1 else ""
    context = f" x context {shape.cp}" if shape.cp > 1 else ""
    experts = f", {experts_text(shape)}" if shape.has_expert_grid else ""
    tensor = tensor_text(degrees)
    return (
        f"tensor {tensor}{context} x data {shape.dp} x pipeline {shape.pp}{chunks} on "
        f"{counted(num_gpus(document.instance, shape), 'GPU')}{experts}, {recompute}{split}{zero}"
    )


def batches_text(document: PlanDocument, shape: Shape) -> str:
    """Micro-batches and schedule in words."""
    counts = [replica.micro_batches for replica in document.replicas]
    least, most = min(counts), max(counts)
    number = f"{least:,} to {most:,}" if least < most else f"{most:,}"
    noun = "micro-batch" if most == 1 else "micro-batches"
    size = counted(shape.micro_batch, "sequence")
    return f"{number} {noun} of {size} per replica, {_SCHEDULES[shape.schedule]} schedule"


def heading_lines(document: PlanDocument) -> Lines:
    """What was asked, and the shape of the plan if there is one."""
    instance, shape = document.instance, document.shape
    lines = [
        ("workload", workload_text(instance.workload)),
        *lengths_lines(instance),
        ("layers", chain_text(instance.workload)),
        ("cluster", cluster_text(instance)),
    ]
    if shape is not None:
        lines += [("plan", shape_text(document, shape)), ("", batches_text(document, shape))]
        degrees = by_group(document.instance, shape)
        lines += [("degrees", degrees)] if degrees else []
    return lines


def _table_note(document: PlanDocument) -> str:
    split = any(stage.weight_gradient_s for one in document.replicas for stage in one.stages)
    weights = " (weights: the part of backward that is put off)" if split else ""
    return f"stages; times per micro-batch{weights}, memory per GPU"


def _closed(document: PlanDocument) -> str:
    reasons = Counter(record.reason for record in document.closed_shapes)
    return ", ".join(f"{reasons[r]:,} {r}" for r in ("infeasible", "bounded", "solved", "open"))


def _closed_by(document: PlanDocument) -> Lines:
    counts = ", ".join(f"{name} {count:,}" for name, count in document.shapes.closed_by.items())
    return [("closed by", counts)] if counts else []


def outcome(document: PlanDocument, others: Sequence[OtherTarget] = ()) -> Lines:
    """Status, bound, gap, what other targets may bring, and what the search did."""
    bound, gap, asked = document.lower_bound_s, document.gap, document.requested_gap
    target = TARGET_NAMES[document.target]
    proof = [_STATUS[document.status].format(target)]
    if document.status == "optimal" and asked:
        proof = [f"optimal for {target}: proved within the {percent(asked)} asked for"]
    if gap is not None:
        proof.append(f"gap {percent(gap)}")
    if bound is not None:
        of = "" if document.minimize == "step_time" else " at this price per hour"
        proof.append(f"lower bound {time_text(bound)}{of}")
    runtime = significant(document.runtime_s, 3)
    return [
        ("plan space", plan_space_text(document.instance.search)),
        ("status", ", ".join(proof)),
        *(("elsewhere", line) for line in _elsewhere(document, others)),
        *([("shapes", _closed(document))] if document.closed_shapes else []),
        *_closed_by(document),
        ("search", f"{document.method}, {runtime} s, {_TERMINATION[document.termination]}"),
    ]


def _elsewhere(document: PlanDocument, others: Sequence[OtherTarget]) -> Iterator[str]:
    """What other launch targets may bring; those that nobody had time for together."""
    better = "faster" if document.minimize == "step_time" else "cheaper"
    late = dict.fromkeys(TARGET_NAMES[one.target] for one in others if one.gain is None)
    for one in others:
        if one.gain is not None:
            yield _other(one, one.gain, better)
    if late:
        yield f"not yet looked at for want of time: {', '.join(late)}; `explain` does"


def _other(other: OtherTarget, most: float, better: str) -> str:
    """What one that was looked at brings, and may bring at most."""
    name, least = TARGET_NAMES[other.target], other.found_gain
    if not least:
        found = f"not yet ruled out that a plan is up to {percent(most)} {better}"
    else:
        found = f"{percent(least)} {better}"
        found += f", at most {percent(most)}" if percent(most) != percent(least) else ""
    return f"{name}: {found}, with search: {other.search}"


def figures(document: PlanDocument) -> Lines:
    """Step time, throughput, money and tightest memory; empty without a plan."""
    step_s, rate = document.step_time_s, document.throughput_sequences_per_s
    per_step, per_hour = document.cost_usd_per_step, document.price_usd_per_hour
    if step_s is None or rate is None or per_step is None or per_hour is None:
        return []
    tokens = rate * document.instance.workload.sequence_length
    busy = percent(busy_share(document) or 0.0)
    steps, training = document.instance.objective.steps, document.training_cost_usd
    whole = f", {money(training)} for {steps:,} steps" if steps and training is not None else ""
    sources = ", ".join(_SOURCES[source] for source in document.time_sources)
    rounding = time_text(document.rounding_error_s or 0.0)
    rent = f"{money(per_step)} per step, {money(per_hour)} per hour{whole}"
    idle = node_ranges(document.idle_nodes)
    return [
        ("step time", f"{time_text(step_s)}, of which at most {rounding} is rounding up"),
        ("throughput", f"{significant(rate)} sequences/s, {significant(tokens)} tokens/s"),
        ("model FLOPs", _speed(document)),
        *([("money", rent)] if per_hour else []),
        *renting_lines(document),
        ("memory", tightest(document)),
        ("layout", _launchers(document)),
        ("GPUs", f"compute {busy} of the time, traffic in layers included; layer times: {sources}"),
        *([("idle", idle)] if idle else []),
        *zone_lines(document),
        *evidence_lines(document),
        *calibration_lines(document),
        *_assumptions(document),
    ]


def _assumptions(document: PlanDocument) -> Lines:
    shape = document.shape
    if shape is None:
        return []
    lines = assumptions(document.instance, shape, degrees_of(document))
    return [*lines, *cost_without_flash(document, shape)]


def _launchers(document: PlanDocument) -> str:
    """Who can launch the layout as it is."""
    names = [TARGET_NAMES[one] for one in able(document.instance, plan_of(document))]
    return f"{', '.join(names) or 'no launch target that is known'} can run it"


def _speed(document: PlanDocument) -> str:
    """Model FLOP/s, and their share of what the GPUs could do at most."""
    per_gpu = significant((document.model_flop_per_s_per_gpu or 0.0) / 1e12)
    precision = document.instance.workload.precision
    mfu = percent(document.mfu or 0.0)
    return f"{per_gpu} TFLOP/s per GPU, MFU {mfu} of the dense {precision} peaks"


def plan_space_text(search: SearchSpace) -> str:
    """What all plans of the plan space have in common, and who can launch them."""
    who = TARGET_NAMES[search.target]
    alike = ", recomputation alike in all stages" if search.recompute_per == "plan" else ""
    degrees = _DEGREES[search.degrees]
    return f"{who}, {degrees}, {search.micro_batches} micro-batches{alike}"


def result_text(
    document: PlanDocument,
    costs: PlanCosts | None,
    step: Step | None,
    others: Sequence[OtherTarget] = (),
) -> list[RenderableType]:
    """Everything that `solve` prints for people, in order; costs and step: of the plan."""
    parts: list[RenderableType] = [labelled(heading_lines(document)), ""]
    if costs is not None and step is not None:
        lines = figures(document) + summary(document, costs, step)
        parts += [_table_note(document), stage_table(document), "", labelled(lines)]
    return [*parts, labelled(outcome(document, others))]


def infeasible_text(infeasibility: Infeasibility) -> Labelled:
    """What stands in the way, and what would help."""
    return labelled([("not met", infeasibility.constraint), ("would help", infeasibility.remedy)])


def solution_text(
    document: PlanDocument,
    infeasibility: Infeasibility | None,
    others: Sequence[OtherTarget] = (),
) -> list[RenderableType]:
    """The same from the document; and if there is no plan, what stands in the way."""
    if document.shape is None:
        parts = result_text(document, None, None, others)
    else:
        costs = costs_of(document)
        parts = result_text(document, costs, simulate_step(costs), others)
    return parts if infeasibility is None else [*parts, infeasible_text(infeasibility)]


def plan_text(document: PlanDocument, step: Step) -> list[RenderableType]:
    """Everything that `show` prints, in order."""
    return [
        labelled(heading_lines(document)),
        "",
        _table_note(document),
        stage_table(document),
        "",
        "memory per GPU",
        memory_table(document),
        "",
        "traffic and update; transfers per micro-batch, the rest per step",
        traffic_table(document),
        "",
        placement_table(document),
        "",
        text_timeline(document, step),
        "",
        labelled(figures(document) + outcome(document)),
    ]
