"""All checks of one fleet file: digest, nodes, templates, memory, figures, and what was copied.

The bound is a step that no fleet of its templates beats, worked out without any search.

Sets. Designs i, stages k of each, numbers of pipelines x.
Step of one pipeline. m micro-batches take at least m t_k + w_k for every stage k of p: t_k is
forward plus backward; before its first forward the first micro-batch passes all stages before k,
and after its last backward the last one passes them again, up to the first stage, its tied
embeddings and its optimizer. With 1F1B they also take the latency, all of one micro-batch, plus
(m - 1) t_k less (p - 1 - k) f_k, or b_k: follow the first micro-batch down and back to k, then all
that is left there, of which up to p - 1 - k forwards were done before, and go up; or all that k
does before the last forward, up to p - 1 - k backwards less, then the last micro-batch down and
back. So in a step T a pipeline takes at most min over these of floor((T - w) / t) micro-batches.
Fleets. Of x pipelines, the most micro-batches in a step T are a knapsack over nodes: layer by
layer, the best of x - 1 pipelines on fewer nodes and one more. A fleet of x pipelines steps in
T + e or more, T the least for which that is enough and e the least exchange of gradients of any
design among x pipelines; neighbouring x go together.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, prod

from formulations.costs.template_costs import TemplateCosts, exchange_times_ns, template_costs
from formulations.fleet import Design, Pipeline, holdings
from formulations.space.configurations import recompute_ways
from formulations.space.fleets import unfit_fields
from formulations.transition import Copy, Links, layer_state_bytes, missing
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.fleet_document import FleetDocument, PipelineDocument, RecoveryDocument, pipelines_of
from solver.simulate import pipeline_step_ns
from solver.verify.feasibility import check_recomputed
from solver.verify.findings import NOISE, Effort, Findings, verification
from solver.verify.partition import deal
from solver.verify.templates import check_sharing, check_steps, prove_claims


@verification
def verify_fleet(document: FleetDocument, findings: Findings, effort: Effort) -> None:
    """Checks every constraint and figure of a fleet file against its own instance.

    Also how much better another fleet may be, if anything is to be proved.
    """
    _check_content(document, findings)
    if effort.prove != "nothing" and not findings.problems:
        _check_bound(document, findings)
        prove_claims(document, effort, findings)


def _check_content(document: FleetDocument, findings: Findings) -> None:
    for field, value, allowed, _ in unfit_fields(document.instance):
        findings.refuse(f"instance.{field}", value, allowed)
    _check_places(document, document.pipelines, "pipelines", findings)
    used = [name for pipeline in document.pipelines for name in pipeline.nodes]
    nodes = sorted([*used, *document.idle, *document.away])
    every = sorted(document.instance.cluster.node_names)
    findings.require(nodes == every, "pipelines, idle, away", nodes, "every node once")
    for n, design in enumerate(document.designs):
        _check_template(document, design, f"designs[{n}].template", findings)
    _check_designs(document, findings)
    findings.halt()
    check_sharing(document, findings)
    findings.halt()
    check_steps(document, findings)
    findings.note(f"nodes and templates of {len(document.pipelines)} pipelines")
    fleet = pipelines_of(document, document.pipelines)
    _check_figures(document, fleet, findings)
    if document.recovery is not None:
        _check_recovery(document, document.recovery, fleet, findings)


def _check_places(
    document: FleetDocument, pipelines: tuple[PipelineDocument, ...], field: str, findings: Findings
) -> None:
    """Every pipeline has a template, on nodes of the cluster of the groups that it asks for."""
    cluster, number = document.instance.cluster, len(document.designs)
    group_of = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
    for n, pipeline in enumerate(pipelines):
        where, i = f"{field}[{n}]", pipeline.design
        if findings.require(i < number, f"{where}.design", i, f"below {number}"):
            wanted = document.designs[i].template.node_groups
            fits = tuple(group_of.get(name) for name in pipeline.nodes) == wanted
            findings.require(fits, f"{where}.nodes", pipeline.nodes, f"nodes of groups {wanted}")
    nodes = Counter(name for pipeline in pipelines for name in pipeline.nodes)
    twice = [name for name, count in nodes.items() if count > 1]
    findings.require(not twice, field, f"{twice} more than once", "no node shared")


def _check_designs(document: FleetDocument, findings: Findings) -> None:
    """Each template once, one micro-batch size for all, and strategies of the instance."""
    designs, search = document.designs, document.instance.search
    ways = [*recompute_ways(document.instance, 0), *((way,) for way in search.recompute)]
    for n, design in enumerate(designs):
        for name, allowed in (("recompute", ways), ("schedule", search.schedule)):
            value, field = getattr(design.strategy, name), f"designs[{n}].strategy.{name}"
            findings.one_of(field, value, allowed)
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
    template, ways = design.template, design.strategy.recompute
    workload, groups = document.instance.workload, document.instance.cluster.groups
    blocks = [layer.is_block for layer in workload.layers]
    findings.equal(f"{field}: layers", template.num_layers, len(blocks))
    exist = max(template.node_groups) < len(groups)
    if not findings.require(exist, field, template.node_groups, "known groups"):
        return
    for k, stage in enumerate(template.stages):
        where, num_gpus = f"{field}.stages[{k}]", groups[template.group_of(stage)].gpus_per_node
        findings.at_most(f"{where}: last of its GPUs", stage.group.gpus[-1] + 1, num_gpus)
        num_blocks = sum(blocks[slice(*stage.layers)])
        enough = num_blocks > 0 or document.instance.search.embedding_only_stages
        findings.require(enough, where, f"no block in {stage.layers}", "a block")
        check_recomputed(stage.recomputed, ways, num_blocks, f"{where}.recomputed", findings)


def _check_figures(
    document: FleetDocument, fleet: tuple[Pipeline, ...], findings: Findings
) -> None:
    """Memory, micro-batches and times, simulated again."""
    instance = document.instance
    used = {document.designs[pipeline.design] for pipeline in document.pipelines}
    longest_ns = _check_steps(document, document.pipelines, "pipelines", fleet, findings)
    findings.equal("survives", document.survives, len(fleet) - 1)
    exchange_ns = max(exchange_times_ns(instance, design, len(fleet))[-1] for design in used)
    step_s = seconds(longest_ns + exchange_ns)
    figures = {
        "exchange_s": seconds(exchange_ns),
        "step_time_s": step_s,
        "throughput_sequences_per_s": instance.workload.global_batch / step_s,
    }
    for field, figure in figures.items():
        findings.close(field, getattr(document, field), figure)
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
    used = {document.designs[pipeline.design] for pipeline in pipelines}
    costs_of = {
        design.template: template_costs(instance, design.strategy, design.template)
        for design in used
    }
    simulated, steps = cache(lambda template, m: pipeline_step_ns(costs_of[template], m)), []
    for n, pipeline in enumerate(fleet):
        costs, m = costs_of[pipeline.template], pipeline.micro_batches
        memory = zip(costs.used_bytes(m), costs.limit_bytes, strict=True)
        for k, (used_bytes, limit) in enumerate(memory):
            findings.at_most(f"{field}[{n}], stage {k}: bytes", used_bytes, limit)
        steps.append(simulated(pipeline.template, m))
        findings.close(f"{field}[{n}].step_time_s", pipelines[n].step_time_s, seconds(steps[-1]))
    batch = sum(pipeline.micro_batches for pipeline in fleet) * micro_batch
    findings.equal(f"{field}: sequences of a step", batch, instance.workload.global_batch)
    return max(steps)


def _check_bound(document: FleetDocument, findings: Findings) -> None:
    """How much shorter the step of other fleets may be, and how many steps they may train."""
    recovery, claim = document.recovery, "the bound on its steps, at the word of the search"
    least_ns = least_step_ns(document, round(document.step_time_s * NANOSECONDS_PER_SECOND))
    if least_ns is None:
        if recovery is not None:
            findings.reserve(claim)
        return
    shorter = _rounded_up(max(0.0, 1 - seconds(least_ns) / document.step_time_s))
    findings.note(f"no fleet of these templates has a step more than {shorter} shorter")
    if recovery is None:
        return
    nodes_before = {name for pipeline in recovery.before for name in pipeline.nodes}
    # fleets that lose no node could go on as they were
    pause_s = recovery.restart_s if nodes_before & set(document.away) else 0.0
    most_steps = max(0.0, recovery.horizon_s - pause_s) / seconds(least_ns)
    if recovery.steps_bound < most_steps * (1 - NOISE):
        more = "" if not recovery.steps else _rounded_up(most_steps / recovery.steps - 1)
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
    _check_places(document, recovery.before, "recovery.before", findings)
    findings.halt()
    instance = document.instance
    names, sizes = instance.cluster.node_names, layer_state_bytes(instance.workload)
    before = pipelines_of(document, recovery.before)
    _check_steps(document, recovery.before, "recovery.before", before, findings)
    away, lost, joined = map(set, (document.away, recovery.lost, recovery.joined))
    replica_of = {name: r for r, pipeline in enumerate(recovery.before) for name in pipeline.nodes}
    absent = sorted(((away - lost) | joined) & replica_of.keys())
    findings.require(not absent, "recovery.before", absent, "no node that was away then")
    findings.require(lost <= away, "recovery.lost", recovery.lost, "nodes away")
    present = joined <= set(names) - away
    findings.require(present, "recovery.joined", recovery.joined, "nodes of the cluster, not away")
    layers_of = {n: layers for n, layers in holdings(before).items() if names[n] not in away}
    number = {name: n for n, name in enumerate(names)}
    copies = [
        Copy(copy.layer, None if copy.source is None else number[copy.source], number[copy.target])
        for copy in recovery.copies
    ]
    wanted = sorted(missing(layers_of, fleet))
    copied = sorted((copy.target, copy.layer) for copy in copies)
    findings.require(copied == wanted, "recovery.copies", copied, f"exactly {wanted}")
    for n, copy in enumerate(recovery.copies):
        field = f"recovery.copies[{n}]"
        findings.equal(f"{field}.size_bytes", copy.size_bytes, sizes[copy.layer])
        holders = [names[node] for node, layers in layers_of.items() if copy.layer in layers]
        fits = not holders if copy.source is None else copy.source in holders
        findings.require(fits, f"{field}.source", copy.source, f"one of {holders}")
        findings.equal(f"{field}.replica", copy.replica, replica_of.get(copy.source or ""))
    time_ns = Links(instance.cluster).transfer_ns(copies, sizes)
    findings.close("recovery.transfer_s", recovery.transfer_s, seconds(time_ns))
    findings.close("recovery.steps", recovery.steps, document.training_s / document.step_time_s)
    findings.at_least("recovery.steps_bound", recovery.steps_bound, recovery.steps * (1 - NOISE))
    findings.note(f"sources and time of {len(copies)} copies")


#: Entries that all knapsacks may write; beyond, nothing is proved.
MOST_ENTRIES = 10**9
#: Numbers of pipelines go together with up to one in so many above them.
WIDTH = 4
#: Steps are told apart to one part in so many.
RESOLUTION = 10**6


@dataclass(frozen=True)
class _Kind:
    """A design: nodes per group, (t_k, w_k) per stage, exchange among 1, 2, .. pipelines."""

    nodes: tuple[int, ...]
    lines: tuple[tuple[int, int], ...]
    exchanges_ns: tuple[int, ...]

    def capacity(self, step_ns: int, total: int) -> int:
        """Most micro-batches of a step, up to `total`."""
        capacity = total
        for each_ns, wait_ns in self.lines:
            left_ns = step_ns - wait_ns
            capacity = min(capacity, left_ns // each_ns if each_ns else total * (left_ns >= 0))
        return max(0, capacity)


def stage_lines(costs: TemplateCosts) -> tuple[tuple[int, int], ...]:
    """(t_k, w_k) per stage, in ns, and with 1F1B another per stage; see the head of this file."""
    tail = int(costs.optimizer_ns[0]) + costs.embedding_ns
    forward, backward = costs.forward_ns.tolist(), costs.backward_ns.tolist()
    back_and_forth = [*(costs.send_ns + costs.send_back_ns).tolist(), 0]
    latency = sum(forward) + sum(backward) + sum(back_and_forth)
    lines, wait = list[tuple[int, int]](), 0
    for k, transfer in enumerate(back_and_forth):
        busy, others = forward[k] + backward[k], costs.num_stages - 1 - k
        lines.append((busy, wait + tail))
        if costs.schedule == "1f1b":
            hidden = busy + others * min(forward[k], backward[k])
            lines.append((busy, latency - hidden + tail))
        wait += busy + transfer
    return tuple(lines)


def least_step_ns(document: FleetDocument, step_ns: int) -> int | None:
    """No fleet of the file's designs on its ready nodes steps in less; at most `step_ns`.

    Fleets that survive as many failures as were asked for, or as this one does, if fewer. None
    where there are too many mixes of nodes to look at.
    """
    instance, available, total = document.instance, document.nodes_left, document.micro_batches
    fewest = min(document.faults, document.survives) + 1
    smallest = min(design.template.num_nodes for design in document.designs)
    most_pipelines = min(total, sum(available) // smallest)
    ranges = sorted(
        _ranges(fewest, most_pipelines), key=lambda numbers: len(document.pipelines) not in numbers
    )
    states = prod(count + 1 for count in available)
    looks = len(ranges) + RESOLUTION.bit_length()
    if states * most_pipelines * len(document.designs) * looks > MOST_ENTRIES:
        return None
    kinds = [
        _Kind(
            design.template.counts(len(available)),
            stage_lines(template_costs(instance, design.strategy, design.template)),
            exchange_times_ns(instance, design, most_pipelines),
        )
        for design in document.designs
    ]
    least_ns = step_ns
    for numbers in ranges:
        exchange_ns = min(kind.exchanges_ns[x - 1] for kind in kinds for x in numbers)
        limit_ns = least_ns - exchange_ns
        shortest_ns = _least_ns(kinds, available, total, numbers, limit_ns)
        least_ns = min(least_ns, shortest_ns + exchange_ns)
    return least_ns


def _ranges(first: int, last: int) -> Iterator[range]:
    """Parts of first..last, narrow at first, where one pipeline more adds most to the exchange."""
    while first <= last:
        end = min(first + max(1, first // WIDTH), last + 1)
        yield range(first, end)
        first = end


def _least_ns(
    kinds: Sequence[_Kind], available: tuple[int, ...], total: int, numbers: range, limit_ns: int
) -> int:
    """No fleet of so many pipelines steps in less, before the exchange; `limit_ns` at most."""

    def enough(step_ns: int) -> bool:
        capacities = [kind.capacity(step_ns, total) for kind in kinds]
        return _most(kinds, capacities, available, numbers) >= total

    low, high = 0, max(0, limit_ns)
    if not enough(high - 1):
        return high
    while high - low > high // RESOLUTION:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _most(
    kinds: Sequence[_Kind], capacities: Sequence[int], available: tuple[int, ...], numbers: range
) -> int:
    """Most micro-batches of so many pipelines on the nodes, of which some may be idle."""
    most = dict[tuple[int, ...], int]()
    for kind, capacity in zip(kinds, capacities, strict=True):
        if capacity and all(map(int.__le__, kind.nodes, available)):
            most[*kind.nodes, 0] = max(capacity, most.get((*kind.nodes, 0), 0))
    # the last group is counted in none: one more, of no nodes
    deals = deal(most, numbers.stop - 1, (*available, 0))
    return max(int(deals[number].max()) for number in numbers)
