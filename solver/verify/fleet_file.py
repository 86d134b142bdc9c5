"""All checks of one fleet file: digest, nodes, templates, memory, figures, and what was copied."""

from collections import Counter
from math import ceil

from formulations.costs.template_costs import TemplateCosts, exchange_times_ns, template_costs
from formulations.fleet import Design, Pipeline, Strategy, holdings
from formulations.plan import Recomputed
from formulations.space.configurations import recompute_ways
from formulations.space.fleets import unfit_fields
from formulations.transition import Copy, Links, layer_state_bytes, missing
from formulations.units import seconds
from solver.fleet_document import FleetDocument, PipelineDocument, RecoveryDocument, pipelines_of
from solver.simulate import pipeline_step_ns
from solver.verify.cascade import Effort
from solver.verify.findings import Findings, Verification, verification
from solver.verify.fleet_bound import least_step_ns
from solver.verify.templates import check_sharing, check_steps, prove_claims


def verify_fleet(document: FleetDocument, effort: Effort | None = None) -> Verification:
    """Checks every constraint and figure of a fleet file against its own instance.

    Also how much better another fleet may be, if anything is to be proved. Uses no code of models,
    engines or search. Never raises for a document that could be read.
    """
    asked = effort or Effort()

    def check(findings: Findings) -> None:
        _check_content(document, findings)
        if asked.prove != "nothing" and not findings.num_problems:
            _check_bound(document, findings)
            prove_claims(document, asked, findings)

    return verification(document, check)


def _check_content(document: FleetDocument, findings: Findings) -> None:
    before = findings.num_problems
    for field, found, allowed, _ in unfit_fields(document.instance):
        findings.refuse(f"instance.{field}", found, allowed)
    _check_places(document, document.pipelines, "pipelines", findings)
    _check_nodes(document, findings)
    for n, design in enumerate(document.designs):
        _check_template(document, design, f"designs[{n}].template", findings)
    _check_designs(document, findings)
    if findings.num_problems == before:
        check_sharing(document, findings)
    if findings.num_problems > before:
        return
    check_steps(document, findings)
    findings.note(f"nodes and templates of {len(document.pipelines)} pipelines")
    fleet = pipelines_of(document, document.pipelines)
    _check_figures(document, fleet, findings)
    if document.recovery is not None:
        _check_recovery(document, document.recovery, fleet, findings)


def _check_places(
    document: FleetDocument,
    pipelines: tuple[PipelineDocument, ...],
    field: str,
    findings: Findings,
) -> None:
    """Every pipeline has a template, on nodes of the cluster of the groups that it asks for."""
    cluster = document.instance.cluster
    groups = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
    for n, one in enumerate(pipelines):
        where, number = f"{field}[{n}]", len(document.designs)
        if not findings.require(
            one.design < number, f"{where}.design", one.design, f"below {number}"
        ):
            continue
        wanted = document.designs[one.design].template.node_groups
        found = tuple(groups.get(name) for name in one.nodes)
        findings.require(found == wanted, f"{where}.nodes", one.nodes, f"nodes of groups {wanted}")
    nodes = Counter(name for one in pipelines for name in one.nodes)
    twice = [name for name, count in nodes.items() if count > 1]
    findings.require(not twice, field, f"{twice} more than once", "no node shared")


def _check_nodes(document: FleetDocument, findings: Findings) -> None:
    """Every node of the cluster is in a pipeline, idle or away."""
    used = [name for one in document.pipelines for name in one.nodes]
    found = sorted([*used, *document.idle, *document.away])
    every = sorted(document.instance.cluster.node_names)
    findings.require(found == every, "pipelines, idle, away", found, "every node once")


def _check_designs(document: FleetDocument, findings: Findings) -> None:
    """Each template once, one micro-batch size for all, and strategies of the instance."""
    designs, search = document.designs, document.instance.search
    ways = [*recompute_ways(document.instance, 0), *((own,) for own in search.recompute)]
    for n, design in enumerate(designs):
        for name, allowed in (("recompute", ways), ("schedule", search.schedule)):
            found, field = getattr(design.strategy, name), f"designs[{n}].strategy.{name}"
            findings.require(found in allowed, field, found, f"one of {list(allowed)}")
    templates = {design.template for design in designs}
    findings.require(len(templates) == len(designs), "designs", "a template twice", "each once")
    sizes = sorted({design.strategy.micro_batch for design in designs})
    findings.require(len(sizes) == 1, "designs", f"micro-batches of {sizes}", "one size")
    listed = search.micro_batch or sizes
    text = f"one of {list(listed)}"
    findings.require(set(sizes) <= set(listed), "designs", f"micro-batches of {sizes}", text)


def _check_template(
    document: FleetDocument, design: Design, field: str, findings: Findings
) -> None:
    """All layers, GPUs that the nodes have, a block a stage."""
    template = design.template
    workload, groups = document.instance.workload, document.instance.cluster.groups
    blocks = [layer.is_block for layer in workload.layers]
    findings.equal(f"{field}: layers", template.num_layers, len(blocks))
    if not findings.require(
        max(template.node_groups) < len(groups), field, template.node_groups, "known groups"
    ):
        return
    for k, stage in enumerate(template.stages):
        have = groups[template.group_of(stage)].gpus_per_node
        last = stage.group.gpus[-1] + 1
        where = f"{field}.stages[{k}]"
        findings.require(last <= have, where, f"GPUs up to {last}", f"at most {have}")
        number = sum(blocks[slice(*stage.layers)])
        allowed = number or document.instance.search.embedding_only_stages
        findings.require(bool(allowed), where, f"no block in {stage.layers}", "a block")
        _check_recomputed(design.strategy, stage.recomputed, number, where, findings)


def _check_recomputed(
    strategy: Strategy, found: Recomputed, blocks: int, where: str, findings: Findings
) -> None:
    """One of the strategy's ways, for all blocks; for no more with others where none need be."""
    ways = strategy.recompute
    findings.require(found.way in ways, f"{where}.recomputed.way", found.way, f"one of {ways}")
    fewest = 0 if "none" in ways and found.way == "full" else blocks
    most = 0 if found.way == "none" else blocks
    findings.require(
        min(fewest, most) <= found.blocks <= most,
        f"{where}.recomputed.blocks",
        found.blocks,
        f"{min(fewest, most)} to {most}",
    )


def _check_figures(
    document: FleetDocument, fleet: tuple[Pipeline, ...], findings: Findings
) -> None:
    """Memory, micro-batches and times, simulated again."""
    instance = document.instance
    used = {document.designs[one.design] for one in document.pipelines}
    longest_ns = _check_steps(document, document.pipelines, "pipelines", fleet, findings)
    findings.equal("survives", document.survives, len(fleet) - 1)
    exchange_ns = max(exchange_times_ns(instance, one, len(fleet))[-1] for one in used)
    findings.close("exchange_s", document.exchange_s, seconds(exchange_ns))
    step_s = seconds(longest_ns + exchange_ns)
    findings.close("step_time_s", document.step_time_s, step_s)
    throughput = instance.workload.global_batch / step_s
    recorded = document.throughput_sequences_per_s
    findings.close("throughput_sequences_per_s", recorded, throughput)
    findings.note(f"memory and simulated step of {len(fleet)} pipelines")


def _check_steps(
    document: FleetDocument,
    pipelines: tuple[PipelineDocument, ...],
    field: str,
    fleet: tuple[Pipeline, ...],
    findings: Findings,
) -> int:
    """Memory, micro-batches and times of a fleet before its exchange; the longest, ns."""
    instance, micro_batch = document.instance, document.designs[0].strategy.micro_batch
    used = {document.designs[one.design] for one in pipelines}
    costs = {one.template: template_costs(instance, one.strategy, one.template) for one in used}
    unlike = {(one.template, one.micro_batches) for one in fleet}
    times = {pair: pipeline_step_ns(costs[pair[0]], pair[1]) for pair in unlike}
    steps = []
    for n, one in enumerate(fleet):
        _check_memory(costs[one.template], one.micro_batches, f"{field}[{n}]", findings)
        steps.append(times[one.template, one.micro_batches])
        findings.close(f"{field}[{n}].step_time_s", pipelines[n].step_time_s, seconds(steps[-1]))
    batch = sum(one.micro_batches for one in fleet) * micro_batch
    findings.equal(f"{field}: sequences of a step", batch, instance.workload.global_batch)
    return max(steps)


def _check_memory(costs: TemplateCosts, micro_batches: int, field: str, findings: Findings) -> None:
    for k, (used, limit) in enumerate(
        zip(costs.used_bytes(micro_batches), costs.limit_bytes, strict=True)
    ):
        findings.require(
            used <= limit, f"{field}, stage {k}", f"{used} bytes", f"at most {limit} bytes"
        )


def _check_bound(document: FleetDocument, findings: Findings) -> None:
    """How much shorter the step of other fleets may be, and how many steps they may train."""
    recovery, claim = document.recovery, "the bound on its steps, at the word of the search"
    least_ns = least_step_ns(document, round(document.step_time_s * 1e9))
    if least_ns is None:
        if recovery is not None:
            findings.reserve(claim)
        return
    shorter = _rounded_up(max(0.0, 1 - seconds(least_ns) / document.step_time_s))
    findings.note(f"no fleet of these templates has a step more than {shorter} shorter")
    if recovery is None:
        return
    whole = set(document.away).isdisjoint(name for one in recovery.before for name in one.nodes)
    pause_s = 0.0 if whole else recovery.restart_s  # they could go on as they were
    most = max(0.0, recovery.horizon_s - pause_s) / seconds(least_ns)
    if recovery.steps_bound < most * (1 - 1e-12):
        more = "" if not recovery.steps else _rounded_up(most / recovery.steps - 1)
        findings.reserve(f"{claim} (proved again: none trains over {more} more)" if more else claim)


def _rounded_up(share: float) -> str:
    """As a percentage with two decimals, or 0."""
    return f"{ceil(share * 1e4) / 100:g} %"


def _check_recovery(
    document: FleetDocument,
    recovery: RecoveryDocument,
    fleet: tuple[Pipeline, ...],
    findings: Findings,
) -> None:
    """What is copied is what was missing, from nodes that are left and hold it."""
    problems = findings.num_problems
    _check_places(document, recovery.before, "recovery.before", findings)
    if findings.num_problems > problems:
        return
    names = document.instance.cluster.node_names
    before = pipelines_of(document, recovery.before)
    _check_steps(document, recovery.before, "recovery.before", before, findings)
    away = set(document.away)
    absent = (away - set(recovery.lost)) | set(recovery.joined)
    found = sorted(absent.intersection(name for one in recovery.before for name in one.nodes))
    findings.require(not found, "recovery.before", found, "no node that was away then")
    held = {node: own for node, own in holdings(before).items() if names[node] not in away}
    findings.require(away.issuperset(recovery.lost), "recovery.lost", recovery.lost, "nodes away")
    findings.require(
        away.isdisjoint(recovery.joined), "recovery.joined", recovery.joined, "nodes not away"
    )
    numbers = {name: n for n, name in enumerate(names)}
    copies = [
        Copy(one.layer, None if one.source is None else numbers[one.source], numbers[one.target])
        for one in recovery.copies
    ]
    wanted = sorted(missing(held, fleet))
    copied = sorted((copy.target, copy.layer) for copy in copies)
    findings.require(copied == wanted, "recovery.copies", copied, f"exactly {wanted}")
    _check_sources(document, recovery, copies, held, findings)
    sizes = layer_state_bytes(document.instance.workload)
    time_ns = Links(document.instance.cluster).transfer_ns(copies, sizes)
    findings.close("recovery.transfer_s", recovery.transfer_s, seconds(time_ns))
    findings.close("recovery.steps", recovery.steps, document.training_s / document.step_time_s)
    findings.require(
        recovery.steps_bound >= recovery.steps * (1 - 1e-12),
        "recovery.steps_bound",
        recovery.steps_bound,
        f"at least {recovery.steps}",
    )
    findings.note(f"sources and time of {len(copies)} copies")


def _check_sources(
    document: FleetDocument,
    recovery: RecoveryDocument,
    copies: list[Copy],
    held: dict[int, range],
    findings: Findings,
) -> None:
    names = document.instance.cluster.node_names
    sizes = layer_state_bytes(document.instance.workload)
    replicas = {name: r for r, one in enumerate(recovery.before) for name in one.nodes}
    for n, (copy, recorded) in enumerate(zip(copies, recovery.copies, strict=True)):
        field = f"recovery.copies[{n}]"
        findings.equal(f"{field}.size_bytes", recorded.size_bytes, sizes[copy.layer])
        holders = [names[node] for node, layers in held.items() if copy.layer in layers]
        if copy.source is None:
            findings.require(not holders, f"{field}.source", "none", f"one of {holders}")
        else:
            findings.require(
                recorded.source in holders, f"{field}.source", recorded.source, f"one of {holders}"
            )
            findings.equal(f"{field}.replica", recorded.replica, replicas.get(names[copy.source]))
