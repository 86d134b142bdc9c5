"""All checks of files of mixed lengths and of switches: problem, groups, times; none is faster.

What strategies, groups and switches take is that of `formulations.lengths` and `.switching`; none
of the planner's choices is believed. Of strategies that were measured the instance has the times.
Any other one has a plan file; its rows take what `formulations.lengths.row_times` works out of that
plan, and fit every replica, as often as 1F1B holds them. Switches of the step have switch files,
which show that they are possible. Of the others, a time that is too long would make a slower step
the best one: times have to be between what no switch plan goes below and the published rule
(HotSPa, SOSP 2024).

In ascending order the least time is worked out again, from the longest sequences down. In any order
the bound is CP-SAT's word, and said to be.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np

from formulations.instance import Cluster, Instance, Workload
from formulations.lengths.problem import Mixed, Strategy
from formulations.lengths.row_times import (
    RowCosts,
    atoms_of,
    instance_of_time,
    measured_problem,
    of_rows,
    plan_name,
)
from formulations.lengths.strategy_time import NEVER, strategy_times
from formulations.lengths.tour import switch_tables
from formulations.plan import Plan
from formulations.switching.shards import layout_of
from formulations.switching.switch import Sending, Switch, port_bound, published_plan, switch_of
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.document import PlanDocument
from solver.interrupt import Deadline, TimeUp
from solver.lengths_document import (
    KINDS,
    LengthsDocument,
    SwitchDocument,
    step_figures,
    switch_figures,
)
from solver.plan_figures import plan_of
from solver.result import Status, Termination, proves, relative_gap
from solver.verify.findings import Effort, Findings, verification
from solver.verify.plan_file import verify_document


@verification
def verify_lengths(document: LengthsDocument, findings: Findings, effort: Effort) -> None:
    """Checks that every sequence is run, all times, and the bound."""
    _check_tour(document, findings)
    findings.halt()
    _check_figures(document, findings)
    if effort.prove == "nothing" or findings.problems:
        return
    clock = Deadline(effort.time_limit_s)
    try:
        plans = _check_strategies(document, findings, clock)
        if plans:
            _check_switches(document, plans, findings)
        findings.halt()
        # The bound: no step in ascending order is below it
        bound_s, least_ns = document.lower_bound_s, least_ascending_ns(document.problem)
        allowed = f"at most {seconds(least_ns)}, that of a step in ascending order"
        holds = round(bound_s * NANOSECONDS_PER_SECOND) <= least_ns
        findings.require(holds, "lower_bound_s", bound_s, allowed)
        findings.halt()
        findings.note("no step in ascending order is below the bound")
        if document.order == "free":
            findings.reserve(f"that no step in any order is below {bound_s:.6g} s: CP-SAT's word")
        if plans:
            _check_all_switches(document, plans, findings, clock)
    except TimeUp:
        findings.reserve("what strategies and switches take, and the bound: no time was left")


def _check_tour(document: LengthsDocument, findings: Findings) -> None:
    """That strategies exist, and that every atom is in one group, as the order allows."""
    num_strategies = len(document.problem.strategies)
    visited = [group.strategy for group in document.groups]
    for field, strategy in (("anchor", document.anchor), *((f"groups: {q}", q) for q in visited)):
        findings.require(strategy < num_strategies, field, strategy, f"below {num_strategies}")
    listed = [k for group in document.groups for k in group.atoms]
    findings.equal("groups: atoms", sorted(listed), list(range(len(document.problem.atoms))))
    again = any(a == b for a, b in pairwise(visited))
    findings.require(not again, "groups", visited, "no strategy twice in a row")
    rising = all(group.atoms == tuple(sorted(group.atoms)) for group in document.groups)
    findings.require(rising, "groups: atoms", listed, "ascending in each group")
    once = len(set(visited)) == len(visited)
    allowed = "ascending" if document.order == "ascending" else "once each, or ascending"
    fits = listed == sorted(listed) or (document.order == "free" and once)
    findings.require(fits, "groups: order", visited, f"strategies {allowed}")
    findings.note(f"{len(document.problem.atoms):,} length classes, each run by one strategy")


def _check_figures(document: LengthsDocument, findings: Findings) -> None:
    """Groups, switches, their sum, the best single strategy; gap, status and termination."""
    figures = step_figures(document.problem, document.tour)
    if figures is None:
        pairs = [(hop.leaves, hop.enters) for hop in document.switches]
        findings.refuse("groups, switches", pairs, "strategies that take the lengths, and switches")
        return
    for field, defined in figures.items():
        findings.compare(field, getattr(document, field), defined)
    findings.note("rows, times of groups and switches")
    step_s, bound_s = document.step_time_s, document.lower_bound_s
    findings.at_most("lower_bound_s", bound_s, step_s)
    gap = relative_gap(step_s, bound_s)
    findings.close("gap", document.gap, gap)
    status = Status.OPTIMAL if proves(gap, document.requested_gap) else Status.FEASIBLE
    findings.equal("status", document.status, status)
    closed = status is Status.OPTIMAL or document.termination is not Termination.CLOSED
    findings.require(closed, "termination", document.termination, "another, or a proof")


def _check_strategies(
    document: LengthsDocument, findings: Findings, clock: Deadline
) -> list[tuple[Plan, PlanDocument]]:
    """The problem of the file beside that of its instance. Raises TimeUp.

    Returns the plans of all strategies; none if they were measured, or one is refused.
    """
    instance, problem = document.instance, document.problem
    if instance is None:
        findings.reserve("what strategies and switches take: the file holds no instance")
        return []
    if instance.lengths is None:
        findings.refuse("instance.lengths", None, "the section of a step of mixed lengths")
        return []
    findings.equal("workload", document.workload, instance.workload.name)
    if instance.lengths.strategies:
        mixed, above = measured_problem(instance)
        findings.compare("problem", problem, mixed)
        findings.equal("above", document.above, above)
        findings.equal("plans: number", len(document.plans), 0)
        findings.equal("switch_plans: number", len(document.switch_plans), 0)
        findings.note("times of strategies and switches are those of the instance")
        return []
    findings.equal("problem.rows", problem.rows, instance.lengths.rows)
    findings.equal("problem.atoms", problem.atoms, atoms_of(instance.lengths))
    findings.equal("problem.parameters_return", problem.switching.parameters_return, False)
    findings.equal("plans: number", len(document.plans), len(problem.strategies))
    findings.halt()
    timed, plans = instance_of_time(instance), list[tuple[Plan, PlanDocument]]()
    findings.equal("above: number", len(document.above), len(document.plans))
    for q, (strategy, file) in enumerate(zip(problem.strategies, document.plans, strict=True)):
        clock.check()
        field = f"problem.strategies[{q}]"
        plan = _plan_of(timed, strategy, file, f"plans[{q}]", findings)
        # Degrees in the name, rows that fit, and all times of the strategy
        name = strategy.name.split(", rows of ")[0].split(" (")[0]
        findings.equal(f"{field}.name", name, plan_name(plan))
        costs = RowCosts(timed, plan)
        longest_rows = [replica.longest_row for replica in strategy.pipelines]
        for r, longest in enumerate(longest_rows):
            where = f"{field}.replicas, pipeline {r}: longest_row"
            findings.require(costs.fits(longest, r), where, longest, "rows that fit its GPUs")
        fewest, pp = min(replica.micro_batches for replica in plan.replicas), plan.config.pp
        findings.at_least(f"{field}: micro-batches of its plan, to be held at once", fewest, pp)
        defined = costs.strategy(strategy.name, longest_rows)
        findings.compare(field, strategy, defined.strategy)
        findings.equal(f"above of {field}", document.above[q : q + 1], (defined.above,))
        plans.append((plan, file))
    findings.note(f"rows, reduction of gradients and optimizer of {len(plans)} strategies")
    findings.halt()
    return plans


def _plan_of(
    timed: Instance, strategy: Strategy, file: PlanDocument, field: str, findings: Findings
) -> Plan:
    """The plan of a strategy, if it is one of the instance with rows as long as they get."""
    if strategy.atoms_ns:
        findings.refuse(f"{field}: strategy", "measured", "as many replicas as a plan has")
    findings.halt()
    longest = max(replica.longest_row for replica in strategy.replicas)
    findings.at_most(f"{field}: longest_row", longest, timed.workload.sequence_length)
    num_rows = sum(replica.micro_batches for replica in file.replicas)
    same = file.instance == of_rows(timed, strategy.longest, num_rows)
    allowed = f"that of the file with rows of {strategy.longest} tokens"
    findings.require(same, f"{field}.instance", "another", allowed)
    for problem in verify_document(file, Effort(prove="nothing")).problems:
        findings.refuse(field, problem, "a plan file that verify accepts")
    findings.halt()
    findings.equal(f"{field}: replicas of its strategy", strategy.dp, len(file.replicas))
    findings.halt()
    return plan_of(file)


def _check_switches(
    document: LengthsDocument, plans: Sequence[tuple[Plan, PlanDocument]], findings: Findings
) -> None:
    """Those of the step: files of these plans, of the times in the tables."""
    switching = document.problem.switching
    tables = {"parameters": switching.parameters_ns, "gradients": switching.gradients_ns}
    pairs = [(hop, kind) for hop in document.switches for kind in KINDS[hop.moves]]
    findings.equal("switch_plans: number", len(document.switch_plans), len(pairs))
    findings.halt()
    for n, ((hop, kind), file) in enumerate(zip(pairs, document.switch_plans, strict=True)):
        field, (before, before_file) = f"switch_plans[{n}]", plans[hop.leaves]
        findings.equal(f"{field}.moves", file.moves, kind)
        same = (file.before, file.after) == (before, plans[hop.enters][0])
        model = before_file.instance  # the workload of a switch is that of `before`
        same &= (file.workload, file.cluster) == (model.workload, model.cluster)
        text = f"of plans {hop.leaves} and {hop.enters}"
        findings.require(same, f"{field}: plans, model and machines", "others", text)
        for problem in verify_switch(file).problems:
            findings.refuse(field, problem, "a switch file that verify accepts")
        time_ns = tables[kind][hop.leaves][hop.enters]
        findings.equal(f"{field}.time_s", file.time_s, seconds(time_ns or 0))
    findings.note(f"{len(pairs)} switches of the step, sending by sending")


def _check_all_switches(
    document: LengthsDocument,
    plans: Sequence[tuple[Plan, PlanDocument]],
    findings: Findings,
    clock: Deadline,
) -> None:
    """That none is below what no switch plan goes below, or above the published rule's time.

    Raises TimeUp.
    """
    model, switching = plans[0][1].instance, document.problem.switching
    layouts = [layout_of(model.cluster, plan) for plan, _ in plans]
    tables = (switching.parameters_ns, switching.gradients_ns)
    for kind, table in zip(KINDS["both"], tables, strict=True):
        for a, b in product(range(len(plans)), repeat=2):
            clock.check()
            switch = switch_of(model.cluster, model.workload, layouts[a], layouts[b], [kind])
            bound_ns, rule_ns = port_bound(switch).time_ns, switch.time_ns(published_plan(switch))
            time_ns, field = table[a][b], f"problem.switching.{kind}_ns[{a}][{b}]"
            fits = time_ns is not None and bound_ns <= time_ns <= rule_ns
            findings.require(fits, field, time_ns, f"{bound_ns} to {rule_ns}")
    findings.note("all switches, between what no plan goes below and the published rule")


def least_ascending_ns(mixed: Mixed) -> int:
    """The least time of a step in ascending order, ns; `NEVER` or more if there is none.

    From the last sequences back to the first, with C[q, i, j] the time of strategy q for atoms
    i .. j - 1 and B[i, q, r] the least time in which atoms i and above are run, and the step ended,
    after q, with anchor r:

        A[i, q, r] = min over j > i of C[q, i, j] + B[j, q, r],                             (1)
        B[i, q, r] = min(min over q' != q of between[q, q'] + A[i, q', r],
                         back[q, r] + C[r, i, K] + once[r] for q != r),                     (2)
        B[K, q, r] = back[q, r] + once[r].
    """
    num_atoms, count = len(mixed.atoms), len(mixed.strategies)
    intervals = np.array([times.of_intervals() for times in strategy_times(mixed)])  # C
    once = np.array([strategy.anchor_ns for strategy in mixed.strategies], dtype=np.int64)
    out, between, back = switch_tables(mixed.switching).values()
    rest = np.full((num_atoms + 1, count, count), NEVER)  # B
    rest[num_atoms] = back + once
    begun = rest[num_atoms]
    for i in reversed(range(num_atoms)):
        ahead = intervals[:, i, i + 1 :, None] + rest[i + 1 :].transpose(1, 0, 2)
        begun = np.minimum(ahead.min(axis=1), NEVER)  # (1) A[i], [q, r]
        onwards = (between[:, :, None] + begun[None]).min(axis=1)
        by_anchor = back + intervals[:, i, num_atoms] + once
        np.fill_diagonal(by_anchor, NEVER)
        rest[i] = np.minimum(np.minimum(onwards, by_anchor), NEVER)  # (2)
    alone = intervals[:, 0, num_atoms] + once
    return int(min((out.T + begun).min(), alone.min()))


@verification
def verify_switch(document: SwitchDocument, findings: Findings, _: Effort) -> None:
    """Checks that everything arrives once from where it is, and all figures."""
    cluster, names = document.cluster, document.cluster.node_names
    findings.equal("cluster: names of nodes", len(set(names)), len(names))
    for name, plan in (("before", document.before), ("after", document.after)):
        _check_plan(document.workload, cluster, plan, name, findings)
    findings.halt()
    before, after = (layout_of(cluster, plan) for plan in (document.before, document.after))
    switch = switch_of(cluster, document.workload, before, after, KINDS[document.moves])
    same, text = document.classes == switch.classes, "those into which both plans cut what moves"
    findings.require(same, "classes", "others", text)
    findings.halt()
    _check_sendings(document.sendings, switch, findings)
    findings.halt()
    findings.note(f"every part arrives once: {len(switch.classes)} classes of slices")
    for field, expected in switch_figures(switch, document.sendings).items():
        findings.equal(field, getattr(document, field), expected)
    findings.note("time of the busiest port or link, what no plan goes below, the published rule")


def _check_sendings(sendings: Sequence[Sending], switch: Switch, findings: Findings) -> None:
    """Each needer of a class gets every byte of it once, from owners."""
    classes, node_of = switch.classes, switch.network.node_of
    received: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for i, way in enumerate(sendings):
        field, allowed = f"sendings[{i}]", f"below {len(classes)}"
        if not findings.require(way.number < len(classes), f"{field}.number", way.number, allowed):
            continue
        owners, needers = classes[way.number].owners, set(classes[way.number].needers)
        owner = way.source in owners
        findings.require(owner, f"{field}.source", way.source, "a GPU that holds the class")
        once = len(set(way.receivers)) == len(way.receivers) and needers.issuperset(way.receivers)
        text = "GPUs that lack the class, once each"
        if not findings.require(once, f"{field}.receivers", way.receivers, text):
            continue
        nodes = {node_of[gpu] for gpu in way.receivers}
        forwards = way.via is None or (way.via in way.receivers and len(nodes) == 1)
        findings.require(forwards, f"{field}.via", way.via, "a receiver, of the node of all")
        for gpu in way.receivers:
            received[way.number, gpu].append((way.begin, way.end))
    findings.halt()
    for number, moved in enumerate(classes):
        for gpu in moved.needers:
            ranges = sorted(received[number, gpu])
            edges = [(0, 0), *ranges, (moved.size_bytes, moved.size_bytes)]
            covered = all(low[1] == high[0] for low, high in pairwise(edges))
            covered &= all(begin < end for begin, end in ranges)
            field = f"sendings: bytes of class {number} to GPU {gpu}"
            findings.require(covered, field, ranges, "every byte of the class once")


def _check_plan(
    workload: Workload, cluster: Cluster, plan: Plan, field: str, findings: Findings
) -> None:
    """Adds a problem for layers that are missing or doubled, and for GPUs that are not there."""
    sizes = [cluster.groups[j].gpus_per_node for j in cluster.node_groups]
    taken: dict[tuple[int, int], tuple[int, int]] = {}
    copies = [0] * len(workload.layers)  # ranks that hold the experts of a layer, by layer
    findings.require(bool(plan.replicas), f"{field}.replicas", "none", "one at least")
    for r, replica in enumerate(plan.replicas):
        ends = [0, *(stage.layers[1] for stage in replica.stages)]
        starts = [*(stage.layers[0] for stage in replica.stages), len(copies)]
        findings.equal(f"{field}.replicas[{r}]: layers", starts, ends)
        for k, stage in enumerate(replica.stages):
            where, node = f"{field}.replicas[{r}].stages[{k}]", stage.group.node
            gpus, width = stage.group.gpus, stage.degrees.width
            exists = node < len(sizes) and all(gpu < sizes[node] for gpu in gpus)
            findings.require(exists, f"{where}.group", stage.group, "GPUs of a node that is there")
            found = len(gpus), len(set(gpus))
            findings.equal(f"{where}: GPUs, and those that differ", found, (width, width))
            owner = r, k % plan.config.pp
            alone = all(taken.setdefault((node, gpu), owner) == owner for gpu in gpus)
            findings.require(alone, f"{where}.group", stage.group, "GPUs of one stage alone")
            ranks = width // (1 if plan.config.etp is not None else stage.degrees.tp)
            for layer in range(stage.layers[0], min(stage.layers[1], len(copies))):
                copies[layer] += ranks
    ep, layers = plan.config.ep, zip(copies, workload.layers, strict=True)
    fewest = min((ranks for ranks, layer in layers if layer.expert_parameters), default=ep)
    findings.at_most(f"{field}.config.ep", ep, fewest)
