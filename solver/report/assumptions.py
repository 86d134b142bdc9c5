"""What a plan's figures rest on: strategies, sources, terms of renting; what it leaves unused.

All sources stand in the plan file, and in the list of the catalogue.
"""

from collections.abc import Iterator, Sequence

from formulations.costs.context import context_methods
from formulations.costs.experts import members_of
from formulations.costs.renting import in_whole_steps
from formulations.instance import Instance
from formulations.instance.instance import Preemption
from formulations.instance.machines import NOT_STATED, Evidence
from formulations.instance.resolve_workload import has_flash
from formulations.instance.search import Overlap
from formulations.instance.workload import FLASH_PRECISIONS, FORMATS
from formulations.plan import Configuration, Degrees
from formulations.units import SECONDS_PER_HOUR
from solver.document import PlanDocument
from solver.report.layout import Lines
from solver.report.naming import WORDS
from solver.report.quantities import counted, money, percent, significant, time_text
from solver.uncertainty import unmeasured


def assumptions(instance: Instance, config: Configuration, degrees: Sequence[Degrees]) -> Lines:
    """One line each, Labelled; `degrees`: of its stages."""
    for text in _assumed(instance, config, degrees):
        yield "assumed", text
    overlap, several, reduces = instance.search.overlap, config.dp > 1, config.splits.gradients
    yield from hidden(
        overlap,
        tensor=overlap.tensor_parallel * any(group.tp > 1 for group in degrees),
        sync=(several and not reduces) * overlap.hidden_sync(config.pp, config.vpp),
        sharding=overlap.sharding * (several and config.in_lockstep),
        experts=overlap.expert_parallel * (config.ep > 1),
    )
    # What would cost nothing; strategies of a profile are as it was measured
    analytic = instance.profile is None and instance.fused is None
    flash = instance.workload.flash_attention
    if analytic and not flash and has_flash(instance.cluster, instance.workload.precision):
        text = "workload.flash_attention is off, although every GPU here has it: less memory"
        yield "unused", text
    spot = ", ".join(group.name for group in instance.cluster.groups if group.spot)
    if spot and instance.objective.minimize != "cost_per_useful_sequence":
        yield "unused", f"spot prices of {spot}: the objective cost_per_useful_sequence uses them"


def preemption_text(preemption: Preemption) -> str:
    """What is taken for granted of all preemptions, and whose word it is."""
    return (
        "all nodes are paid for all the time; nodes on demand are never lost "
        f"({preemption.kind}, {preemption.source})"
    )


def _assumed(
    instance: Instance, config: Configuration, degrees: Sequence[Degrees]
) -> Iterator[str]:
    workload = instance.workload
    sizes = {group.tp for group in degrees}
    if any(instance.splits_sequence(tp) for tp in sizes if tp > 1):
        yield (
            "sequence parallel: what the backward pass gathers again is hidden behind products"
            " (Korthikanti et al. 2023)"
        )
    if instance.cluster.has_joined_nodes:
        yield "joined nodes: named after the first; rings from one to the other share the network"
    if any(group.parts > 1 for group in degrees):
        yield (
            "parts of a stage: each an equal share of every micro-batch, gradients reduced among"
            " them inside the node, of tied embeddings a copy each"
        )
    if len(sizes) > 1 and not all(map(instance.splits_messages, sizes)):
        whose = "of the larger one" if config.per_stage else "of the largest"
        yield f"unlike tensor groups: whole messages cross nodes once per GPU {whose}"
    if "selective" in config.recompute and instance.profile is not None:
        yield "selective recomputation: the analytic share of the measured forward pass again"
    if config.in_lockstep and config.has_copies:
        reduces = config.splits.gradients
        moved = ["parameters gathered"] * config.splits.parameters + ["gradients reduced"] * reduces
        kept = "; gradients kept until the last one" * (not reduces)
        hidden = "" if instance.search.overlap.sharding else ", nothing hidden behind compute"
        yield (
            f"ZeRO {config.zero}: {', '.join(moved)} with every micro-batch, layer by layer,"
            f" all replicas in lockstep{hidden}{kept}"
        )
    if workload.experts:
        experts = "all of them" if config.etp else "its tensor group's share of all"
        seen = f"every GPU holds {experts}"
        if config.ep > 1:
            many = len(members_of(instance, config).node_groups) > 0
            slowest = " at the pace of the slowest node" * many
            seen = f"all-to-alls{slowest}, nothing hidden"
        yield f"experts: as many tokens for each of the {workload.experts}; {seen}"
    if config.cp > 1:
        texts = {"ring": "keys and values go round a ring", "all_to_all": "heads are exchanged"}
        methods = sorted(set(context_methods(instance, config)))
        method = " or ".join(texts[method] for method in methods)
        yield f"context parallel: {method}, not hidden; causal attention is shared evenly"
    if workload.optimizer_state not in (None, "fp32"):
        is_copied = FORMATS[workload.precision].master_bytes > 0
        copy = ", master copy of the parameters in fp32" * is_copied
        yield f"Adam's moments in {workload.optimizer_state}{copy}"
    # Flash attention, and which other plans have it
    names = _without_flash(instance)
    if instance.on(config.nodes_used).workload.flash_attention:
        others = f"; plans on {names} have none" if instance.fused else ""
        yield f"flash attention: no scores are kept{others}"
    elif instance.fused:
        capabilities = {group.gpu.compute_capability for group in instance.cluster.groups}
        none = "none is known" if None in capabilities else "there is none"
        yield f"flash attention: none, as on {names} {none}; plans without these have it"


def hidden(
    overlap: Overlap, *, tensor: float, sync: float, sharding: float = 0, experts: float = 0
) -> Lines:
    """The shares of traffic that are hidden, under the kind of the figures; none without any."""
    shares = (
        (tensor, "tensor-parallel traffic behind products"),
        (experts, "what is exchanged for experts behind compute"),
        (sync, "gradient sync behind backward"),
        (sharding, "what every micro-batch exchanges behind compute, as far as that lasts"),
    )
    if text := ", ".join(f"{percent(share)} of {what}" for share, what in shares if share):
        yield overlap.kind, f"hidden {text} ({overlap.source})"


def flash_warning(instance: Instance, config: Configuration) -> Lines:
    """That GPUs of a plan may have flash attention, where nobody says whether they do."""
    workload = instance.on(config.nodes_used).workload
    if workload.flash_attention or instance.profile or workload.precision not in FLASH_PRECISIONS:
        return
    pairs = zip(instance.cluster.groups, config.nodes_used, strict=True)
    lacking = [group for group, count in pairs if count and not group.gpu.has_flash]
    stated = any(group.gpu.compute_capability is not None for group in lacking)
    if lacking and not stated and any(run.layer.core_kernels for run in workload.layer_runs):
        names = ", ".join(group.name for group in lacking)
        text = f"no flash attention; compute_capability of {names} is not stated: from 8.0 on plans"
        yield "warning", f"{text} take less time and memory with it"


def flash_lines(instance: Instance) -> Lines:
    """Which plans of a family have flash attention, where nodes decide on it."""
    if instance.fused is not None:
        names = _without_flash(instance)
        yield "assumed", f"flash attention: where all GPUs of a plan have it, so not on {names}"


def _without_flash(instance: Instance) -> str:
    return ", ".join(group.name for group in instance.cluster.groups if not group.gpu.has_flash)


# Sources of figures


def evidence_lines(document: PlanDocument) -> Lines:
    """One entry per GPU type used: figures of one kind together, assumed ones of one source.

    The memory's bandwidth goes without saying where it is of the peaks' kind.
    """
    layer_times = "layer times" if document.instance.profile is not None else "kernel efficiency"
    for i, evidence in enumerate(document.evidence):
        words = WORDS["evidence"] | {"layer_times": layer_times}
        if evidence.memory_bandwidth.kind == evidence.peak.kind:
            del words["memory_bandwidth"]
        figures: dict[str, list[str]] = {}
        for name, text in words.items():
            figures.setdefault(_kind_text(getattr(evidence, name)), []).append(text)
        parts = [f"{', '.join(alike)} {kind}" for kind, alike in figures.items()]
        yield "" if i else "rests on", f"{evidence.gpu}: {'; '.join(parts)}"


def _kind_text(evidence: Evidence) -> str:
    if evidence.kind != "assumed":
        besides = ", ".join(evidence.assumed)
        return f"{evidence.kind} ({besides} assumed)" if besides else evidence.kind
    source = evidence.source
    return f"assumed by {source}" if source == NOT_STATED else f"assumed ({source})"


def calibration_lines(document: PlanDocument) -> Lines:
    """By what measured steps correct the layer times of a plan, and the error to expect.

    Of measured layers no error is known: nothing is said.
    """
    calibration, text = document.instance.calibration, error_text(document)
    if text is not None:
        if calibration is not None:
            yield "corrected", f"layer times by {calibration.source}"
        yield "error", "".join(text)


def error_text(document: PlanDocument) -> tuple[str, str] | None:
    """How far the step may be from its prediction, and what says so; None where none is known."""
    calibration, config = document.instance.calibration, document.config
    if calibration is not None and config is not None:
        where = unmeasured(document.instance, config)
        mean = calibration.expected_error_elsewhere if where else calibration.expected_error
        expected = "not known" if mean is None else f"{percent(mean)} of the step time"
        why = f"; no step was measured on {', '.join(where)}" if where else ""
        return f"expected {expected}", why
    error = document.expected_error
    if document.instance.profile is not None or error is None or config is None:
        return None
    measured = "; none measured on these nodes"
    if error.evidence:
        measured = f": {'; '.join(error.evidence)}"
    within = f"lie within {100 * error.bar:.2g} %"
    if error.bar > 1:  # of logarithms: as far above as below
        within = f"take 1/{1 + error.bar:.2g} to {1 + error.bar:.2g} times as long"
    return f"80 % of such steps {within}", measured


# Terms of renting


def renting_lines(document: PlanDocument) -> Lines:
    """Terms, useful throughput, money per useful sequence; empty for other objectives."""
    renting, preemption = document.renting, document.instance.preemption
    step_s, config = document.step_time_s, document.config
    if renting is None or preemption is None or step_s is None or config is None:
        return
    # Price of a node of every group, and how often it is taken back
    label = "rented"
    for group, count in zip(document.instance.cluster.groups, config.nodes_used, strict=True):
        terms, spot = f"on demand, {money(group.price_usd_per_hour)} per node-hour", group.spot
        if spot is not None and group.name in renting.on_spot:
            often = f"{spot.preemptions_per_hour:.4g} preemptions per node-hour"
            price = f"{money(spot.price_usd_per_hour)} per node-hour"
            terms = f"on spot, {price}, {often} ({spot.kind}, {spot.source})"
        if count:
            yield label, f"{counted(count, 'node')} of {group.name} {terms}"
            label = ""
    kept, speed = renting.availability, significant(renting.useful_sequences_per_s)
    why = f", as {percent(kept)} of the time goes into steps that are kept" if kept < 1 else ""
    each = money(renting.cost_usd_per_useful_sequence)
    yield "useful", f"{speed} sequences/s{why}; {each} per sequence"
    # When checkpoints are due, and what the figures take for granted
    every_s, rate = renting.checkpoint_every_s, renting.preemptions_per_hour
    if every_s is None:
        yield "assumed", "nodes on demand are never lost"
        return
    steps, slowdown = in_whole_steps(preemption, rate / SECONDS_PER_HOUR, step_s)
    more = slowdown * renting.availability - 1
    # Smaller shares of time are not worth a word
    longer = f"; whole steps take {percent(more)} more time" if more > 1e-4 else ""
    checkpoint, restart = time_text(preemption.checkpoint_s), time_text(preemption.restart_s)
    due = f"{checkpoint} after {time_text(every_s)} of training, {counted(steps, 'step')}{longer}"
    yield "checkpoints", due
    yield (
        "assumed",
        f"preemptions: {rate:.4g} per hour, one node each at its own time; what came "
        f"after the last checkpoint is lost, and {restart} until another node is in its place; "
        f"{preemption_text(preemption)}",
    )
