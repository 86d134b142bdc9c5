"""A plan in words and tables. Returns what Rich can render; only the command line prints it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from rich.console import Group

from formulations.instance import Instance, Workload
from formulations.instance.targets import TARGETS
from formulations.plan import num_gpus
from formulations.space.launch import able
from solver.document import PlanDocument
from solver.plan_figures import plan_of, step_of
from solver.report import assumptions, links, naming, stages
from solver.report.critical import busy_share, summary
from solver.report.layout import Labelled, Lines, Parts
from solver.report.naming import WORDS
from solver.report.quantities import counted, money, node_ranges, percent, significant, time_text
from solver.report.step import text_timeline
from solver.result import Infeasibility, OtherTarget

_MOST_RUNS = 8  # of equal layers that are listed one by one
_MOST_ROWS = 12  # of a table of stages that is shown whole without `--details`
#: Lines that are printed without `--details`.
_SHORT = {
    *("workload", "lengths", "cluster", "plan", "degrees", "step time", "throughput", "money"),
    *("rented", "useful", "memory", "overfull", "layout", "idle", "status", "second best"),
    *("considered", "not met", "would help", "warning", "more"),
}


def chain_text(workload: Workload) -> str:
    """The layers by name: "E embedding, 0-23 block, H head"; of many runs the numbers."""
    if len(workload.layer_runs) > _MOST_RUNS:
        kinds = Counter(layer.kind for layer in workload.layers)
        return ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    runs = groupby(enumerate(workload.layers), key=lambda item: item[1].kind)
    named = ((naming.layers_text(workload, (n for n, _ in layers)), kind) for kind, layers in runs)
    return ", ".join(f"{layers} {kind}" for layers, kind in named)


def cluster_text(instance: Instance) -> str:
    """Nodes and GPUs by group: "1 node of 4 A100-40, 3 nodes of 4 A10 in zone east"."""
    return ", ".join(
        f"{counted(g.nodes * g.machines, 'node')} of {g.gpus_per_machine} {g.gpu.name}"
        + (f", joined by {g.machines}" if g.machines > 1 else "")
        + (f" in zone {g.zone}" if g.zone else "")
        for g in instance.cluster.groups
    )


def lengths_lines(instance: Instance) -> Lines:
    """That a plan leaves the lengths of sequences out of account, where an instance says them."""
    if instance.lengths is not None:
        taken = f"all sequences as {instance.workload.sequence_length:,} tokens"
        yield "lengths", f"not looked at: {taken}; the command lengths does"


def config_text(document: PlanDocument) -> str:
    """Degrees and memory strategy in words."""
    config = document.planned
    ways = {stage.recomputed.way for stage in stages.all_stages(document)}
    recompute = "recomputation where memory asks for it"
    if len(ways) == 1:
        recompute = WORDS["recompute"][ways.pop()]
    degrees = naming.degrees_of(document)
    splits = document.instance.splits_sequence
    split = ", sequence parallel" * any(splits(group.tp) for group in degrees if group.tp > 1)
    zero = f", {naming.shards_text(config)}" if config.zero else ""
    chunks = f", {naming.chunks_text(config)}," if config.vpp > 1 else ""
    context = f" x context {config.cp}" if config.cp > 1 else ""
    experts = f", {naming.experts_text(config)}" if config.has_expert_grid else ""
    gpus, tensor = counted(num_gpus(document.instance, config), "GPU"), naming.tensor_text(degrees)
    return (
        f"tensor {tensor}{context} x data {config.dp} x pipeline {config.pp}{chunks} "
        f"on {gpus}{experts}, {recompute}{split}{zero}"
    )


def batches_text(document: PlanDocument) -> str:
    """Micro-batches and schedule in words."""
    config, counts = document.planned, [replica.micro_batches for replica in document.replicas]
    fewer = f"{min(counts):,} to " if min(counts) < max(counts) else ""
    size = counted(config.micro_batch, "sequence")
    schedule = f"{WORDS['schedule'][config.schedule]} schedule"
    return f"{fewer}{counted(max(counts), 'micro-batch')} of {size} per replica, {schedule}"


def heading_lines(document: PlanDocument) -> Lines:
    """What was asked, and the configuration of the plan if there is one."""
    instance, config, workload = document.instance, document.config, document.instance.workload
    size = f"{significant(workload.parameters / 1e6)} million parameters"
    sequences = f"{counted(workload.global_batch, 'sequence')} of {workload.sequence_length:,}"
    yield "workload", f"{workload.name}: {size}, {sequences} tokens per step"
    yield from lengths_lines(instance)
    yield "layers", chain_text(workload)
    yield "cluster", cluster_text(instance)
    if config is not None:
        yield "plan", config_text(document)
        yield "", batches_text(document)
        if degrees := naming.by_group(document.instance, config):
            yield "degrees", degrees


def outcome(document: PlanDocument, others: Sequence[OtherTarget] = ()) -> Lines:
    """Status, bound, gap, what other targets may bring, and what the search did."""
    target, asked = TARGETS[document.target].name, document.requested_gap
    proof = [WORDS["status"][document.status].format(target)]
    if document.status == "optimal" and asked:
        proof = [f"optimal for {target}: proved within the {percent(asked)} asked for"]
    if document.gap is not None:
        proof.append(f"gap {percent(document.gap)}")
    if document.lower_bound_s is not None:
        of = "" if document.minimize == "step_time" else " at this price per hour"
        proof.append(f"lower bound {time_text(document.lower_bound_s)}{of}")
    # What all plans of the plan space have in common, and who can launch them
    search = document.instance.search
    alike = ", recomputation alike in all stages" * (search.recompute_per == "plan")
    space = f"{WORDS['degrees'][search.degrees]}, {search.micro_batches} micro-batches{alike}"
    yield "plan space", f"{TARGETS[search.target].name}, {space}"
    yield "status", ", ".join(proof)
    yield from second_best_lines(document)
    # What other launch targets may bring; those that nobody had time for together
    better = "faster" if document.minimize == "step_time" else "cheaper"
    late = dict.fromkeys(TARGETS[rival.target].name for rival in others if rival.gain is None)
    for rival in others:
        if rival.gain is None:
            continue
        up_to, seen = percent(rival.gain), percent(rival.found_gain)
        gain = f"{seen} {better}" + (f", at most {up_to}" if up_to != seen else "")
        if not rival.found_gain:
            gain = f"not yet ruled out that a plan is up to {up_to} {better}"
        yield "elsewhere", f"{TARGETS[rival.target].name}: {gain}, with search: {rival.search}"
    if late:
        text = f"not yet looked at for want of time: {', '.join(late)}; `explain` does"
        yield "elsewhere", text
    # What closed the configurations
    if document.closed_configs:
        reasons = Counter(record.reason for record in document.closed_configs)
        counts = [
            f"{reasons[name]:,} {text}" for name, text in WORDS["closed"].items() if reasons[name]
        ]
        total = counted(len(document.closed_configs), "configuration")
        yield "considered", ", ".join([total, *counts])
    if closed_by := document.configs.closed_by.items():
        yield "closed by", ", ".join(f"{name} {count:,}" for name, count in closed_by)
    runtime = significant(document.runtime_s, 3)
    ended = WORDS["termination"][document.termination].format("configuration")
    yield "search", f"{document.method}, {runtime} s, {ended}"


def figures(document: PlanDocument) -> Lines:
    """Step time, throughput, money and tightest memory; empty without a plan."""
    config = document.config
    if config is None:
        return
    workload, rate = document.instance.workload, document.throughput_sequences_per_s or 0.0
    step, rounding = map(time_text, (document.step_time_s or 0.0, document.rounding_error_s or 0.0))
    per_gpu = significant((document.model_flop_per_s_per_gpu or 0.0) / 1e12)
    mfu = f"MFU {percent(document.mfu or 0.0)} of the dense {workload.precision} peaks"
    tokens = significant(rate * workload.sequence_length)
    if error := assumptions.error_text(document):
        step += f"; {'error ' * (document.instance.calibration is not None)}{error[0]}"
    yield "step time", step
    yield "throughput", f"{significant(rate)} sequences/s, {tokens} tokens/s"
    yield "model FLOPs", f"{per_gpu} TFLOP/s per GPU, {mfu}"
    if per_hour := document.price_usd_per_hour:
        steps, training = document.instance.objective.steps, document.training_cost_usd
        of_all = f", {money(training or 0.0)} for {steps:,} steps" if steps else ""
        per_step = money(document.cost_usd_per_step or 0.0)
        yield "money", f"{per_step} per step, {money(per_hour)} per hour{of_all}"
    launchers = [TARGETS[target].name for target in able(document.instance, plan_of(document))]
    names = ", ".join(launchers) or "at most DeepSpeed or Accelerate"
    busy = percent(busy_share(document))
    sources = ", ".join(WORDS["layer_times"][source] for source in document.time_sources)
    loads = links.loads_of(document)
    yield from assumptions.renting_lines(document)
    yield "memory", stages.tightest(document)
    yield from links.overfull(document, loads)
    yield "layout", f"{names} can run it"
    yield "rounding", f"at most {rounding} of the step time"
    yield "GPUs", f"compute {busy} of the time, traffic in layers included; layer times: {sources}"
    if document.idle_nodes:
        yield "idle", node_ranges(document.idle_nodes)
    yield from links.zone_lines(document, loads)
    yield from assumptions.evidence_lines(document)
    yield from assumptions.calibration_lines(document)
    yield from assumptions.assumptions(document.instance, config, naming.degrees_of(document))
    yield from assumptions.flash_warning(document.instance, config)


def second_best_lines(document: PlanDocument) -> Lines:
    """Whether another configuration lies within the error bar of the plan; none without a bar."""
    second, error = document.second_best, document.expected_error
    if second is None or error is None:
        return
    slower = "slower" if document.minimize == "step_time" else "dearer"
    bar = f"within the error bar of {100 * error.bar:.2g} %"
    if second.config and second.behind is not None and second.behind <= error.bar:
        behind = f"{time_text(second.step_time_s or 0.0)}, {percent(second.behind)} {slower}"
        told = (
            f"{naming.one_line(second.config)}: {behind}, {bar}; `shortlist` picks what to measure"
        )
    elif second.at_least is not None and second.at_least > error.bar:
        told = (
            f"none {bar}: any other configuration is at least {percent(second.at_least)} {slower}"
        )
    else:
        told = f"none was seen {bar}, but none is ruled out there: `shortlist` looks at them"
    yield "second best", told


def _table_note(document: PlanDocument) -> str:
    split = any(stage.weight_gradient_s for stage in stages.all_stages(document))
    weights = " (weights: the part of backward that is put off)" if split else ""
    return f"stages; times per micro-batch{weights}, memory per GPU"


def _asked(lines: Lines, details: bool) -> Lines:
    """All lines, or those that everybody asks for."""
    above = ""
    for label, text in lines:
        above = label or above  # without a label a line goes on with the one above
        if details or above in _SHORT:
            yield label, text


def solution_text(
    document: PlanDocument,
    infeasibility: Infeasibility | None = None,
    others: Sequence[OtherTarget] = (),
    *,
    details: bool = False,
) -> Parts:
    """What `solve` prints for people, in order; without a plan what is in the way."""
    yield Labelled(_asked(heading_lines(document), details))
    lines = [*figures(document)]
    if document.config is not None:
        if details:
            lines += summary(document, step_of(document))
        grid = stages.stage_table(document)
        if len(grid.rows) > _MOST_ROWS and not details:
            between = ["...", *[""] * (len(grid.rows[0]) - 1)]
            half = _MOST_ROWS // 2
            grid = replace(grid, rows=[*grid.rows[:half], between, *grid.rows[-half:]])
        yield Group(_table_note(document), grid)
    lines += outcome(document, others)
    if infeasibility is not None:
        lines += [("not met", infeasibility.constraint), ("would help", infeasibility.remedy)]
    if not details:
        lines.append(("more", "--details"))
    yield Labelled(_asked(lines, details))


def plan_text(document: PlanDocument, *, details: bool = False) -> Parts:
    """What `show` prints, in order."""
    traffic = "traffic and update; transfers per micro-batch, the rest per step"
    lines = *figures(document), *outcome(document), *[("more", "--details")] * (not details)
    return [
        Labelled(heading_lines(document)),
        Group(_table_note(document), stages.stage_table(document)),
        Group("memory per GPU", stages.memory_table(document)),
        Group(traffic, stages.traffic_table(document)),
        stages.placement_table(document),
        Group(*text_timeline(document, step_of(document))),
        Labelled(_asked(lines, details)),
    ]
