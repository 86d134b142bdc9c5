"""A step of mixed lengths, and a switch: in words and tables for Rich, and as a page."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from itertools import accumulate, pairwise

from rich.console import Group

from formulations.instance import Cluster, Instance
from formulations.lengths.problem import Mixed
from formulations.lengths.row_times import lengths_of
from formulations.lengths.strategy_time import strategy_times
from formulations.plan import Plan
from formulations.switching.shards import Slice
from formulations.units import seconds
from solver.lengths.dispatch import dispatch_group
from solver.lengths_document import LengthsDocument, SwitchDocument
from solver.report.html.page import section, sections_page
from solver.report.layout import Grid, Labelled, Lines, Parts, table_of
from solver.report.naming import WORDS, degrees_of, shards_text, tensor_text
from solver.report.quantities import (
    counted,
    percent,
    ranges,
    significant,
    size_text,
    size_unit,
    time_text,
    time_unit,
)

#: Ends of the ranges of lengths that strategies are compared on: those of HotSPa's table 3.
RANGES = (1024, 4096, 8192, 16384, 32768)


def step_text(document: LengthsDocument) -> Parts:
    """Groups in the order of the step, then figures."""
    return [_groups(document), Labelled(lines(document))]


def lengths_page(document: LengthsDocument) -> str:
    """One HTML file that needs nothing else: groups, figures and all strategies."""
    parts = [
        section("Groups", _groups(document)),
        section("Figures", Labelled(lines(document))),
        section("Strategies", _strategies(document.problem)),
    ]
    return sections_page(f"{document.workload}: mixed lengths", parts)


def _groups(document: LengthsDocument) -> Grid:
    """Strategy, lengths, sequences, rows of each replica, time, and the switch that leads to it."""
    unit, rows = time_unit(document.step_time_s), list[list[str]]()
    names = [strategy.name for strategy in document.problem.strategies]
    before, switches_s = document.anchor, [seconds(hop.time_ns or 0) for hop in document.switches]
    for group in document.groups:
        switch_s = switches_s.pop(0) if group.strategy != before else 0.0
        before = group.strategy
        # "4 x 12" where four replicas have as many rows, empty if they are not known
        rows_each = ", ".join(
            f"{n:,} x {num_rows:,}" if n > 1 else f"{num_rows:,}"
            for num_rows, n in Counter(group.micro_batches).items()
        )
        tokens = ", ".join(f"{above + 1:,}-{up_to:,}" for above, up_to in group.buckets)
        times = [unit.text(seconds(group.time_ns)), unit.text(switch_s)]
        rows.append([names[before], tokens, f"{group.sequences:,}", rows_each, *times])
    for switch_s in switches_s:
        rows.append([f"back to {names[document.anchor]}", *[""] * 4, unit.text(switch_s)])
    numbers = ("sequences", "micro-batches", "time", "switch before")
    return Grid(("strategy", "tokens"), numbers, rows)


def lines(document: LengthsDocument) -> Lines:
    """What the step takes beside the best single strategy, and what is proved."""
    step_s, problem = document.step_time_s, document.problem
    sequences = sum(atom.count for atom in problem.atoms)
    orders = {"ascending": "ascending lengths", "free": "any order"}
    anchor = problem.strategies[document.anchor]
    replicas = [replica for strategy in problem.strategies for replica in strategy.replicas]
    # What of the step is no rows
    visits_ns = sum(problem.strategies[group.strategy].visit_ns for group in document.groups)
    parts = {
        "switches": sum(hop.time_ns or 0 for hop in document.switches),
        "reduction of gradients": visits_ns,
        "optimizer": anchor.anchor_ns,
    }
    shares = [f"{time_text(seconds(ns), step_s)} in {name}" for name, ns in parts.items() if ns]
    # What the times of rows are
    model = "the model of cost" if document.plans else "what was measured"
    above = percent(round(max(document.above, default=0.0), 12))
    rows = f"a l^2 + b l + c, at most {above} above {model}"
    if any(replica.time.rows_ns for replica in replicas):
        rows = f"of every length as {model} has them"
    single_text, single = "no strategy takes all sequences", document.single
    if single is not None:
        alone_s = seconds(single.step_ns)
        single_text = f"{time_text(alone_s)} with {problem.strategies[single.strategy].name}"
        if step_s == alone_s:
            single_text += ": no switch pays"
        else:
            single_text += f", {alone_s / step_s if step_s else 1.0:.2f} times as long"
    proved = f"no step in {orders[document.order]} takes less than"
    atoms = f"{sequences:,} sequences of {counted(len(problem.atoms), 'length')}"
    yield "workload", f"{document.workload}: {atoms}, {problem.rows}"
    yield "step", time_text(step_s) + (f", of it {', '.join(shares)}" if shares else "")
    yield "best single", single_text
    yield "anchor", f"{anchor.name} holds the fp32 state: the step begins and ends there"
    yield "bound", f"{proved} {time_text(document.lower_bound_s, step_s)}"
    yield "gap", f"{percent(document.gap)} ({document.status})"
    if replicas:
        yield "row times", rows
    yield "search", f"{time_text(document.runtime_s)}, {document.termination.replace('_', ' ')}"


def strategies_text(instance: Instance, mixed: Mixed) -> Parts:
    """What a step holds, then a table of the strategies for it."""
    workload, lengths = instance.workload, lengths_of(instance)
    tokens = sum(atom.tokens * atom.count for atom in mixed.atoms)
    sequences = sum(atom.count for atom in mixed.atoms)
    up_to = accumulate(atom.count for atom in mixed.atoms)
    half = next(n for n, count in enumerate(up_to) if 2 * count >= sequences)
    times = "as measured" if lengths.strategies else "by the model of cost, 1F1B schedule"
    labels = [
        ("workload", f"{workload.name}: {workload.parameters / 1e6:,.1f} million parameters"),
        (
            "lengths",
            f"{counted(sequences, 'sequence')} per step of {counted(len(mixed.atoms), 'length')},"
            f" {lengths.longest:,} tokens at most, half of them up to {mixed.atoms[half].tokens:,};"
            f" {tokens:,} tokens with all rounded up; source: {lengths.source}",
        ),
        ("rows", f"{mixed.rows}; times {times}"),
    ]
    note = "seconds of all sequences of a range of lengths, alone, with a visit; * least"
    return [Labelled(labels), Group(note, _strategies(mixed))]


def _strategies(mixed: Mixed) -> Grid:
    """[strategy, range] times of all sequences of a range, as HotSPa's figure 8 has them."""
    tokens = [atom.tokens for atom in mixed.atoms]
    ends = sorted({bisect_right(tokens, up_to) for up_to in (*RANGES, tokens[-1])} - {0})
    ranges_of = [range(first, end) for first, end in pairwise([0, *ends])]
    times = [[each.of_set(atoms) for atoms in ranges_of] for each in strategy_times(mixed)]
    fastest = [min(filter(None, column), default=None) for column in zip(*times, strict=True)]
    rows = []
    for strategy, row in zip(mixed.strategies, times, strict=True):
        cells = ["-"] * 3
        if strategy.replicas:
            stages = max(replica.stages for replica in strategy.replicas)
            cells = [str(strategy.dp), str(stages), f"{strategy.longest:,}"]
        cells += [
            "-" if ns is None else f"{'*' * (ns == best)}{significant(seconds(ns), 3)}"
            for ns, best in zip(row, fastest, strict=True)
        ]
        once = [f"{seconds(ns) * 1e3:,.1f}" for ns in (strategy.visit_ns, strategy.anchor_ns)]
        rows.append([strategy.name, *cells, *once])
    headings = (f"to {tokens[atoms[-1]]:,}" for atoms in ranges_of)
    numbers = ["replicas", "stages", "longest row", *headings, "visit ms", "anchor ms"]
    return Grid(["strategy"], numbers, rows)


def dispatch_text(document: LengthsDocument) -> Parts:
    """What groups of whole sequences take, beside the formula; nothing where one is not dealt."""
    problem = document.problem
    dealt = [dispatch_group(problem, group) for group in document.tour.groups]
    groups = [group for group in dealt if group is not None]
    if len(groups) < len(dealt):
        return
    visits_ns = sum(problem.strategies[group.strategy].visit_ns for group in document.groups)
    formula_s = seconds(sum(group.time_ns for group in document.groups) - visits_ns)
    time_s = seconds(sum(group.time_ns for group in groups))
    bound_s = seconds(sum(group.bound_ns for group in groups))
    gap = percent(1 - bound_s / time_s if time_s else 0.0)
    text = (
        f"{time_text(time_s)} with every sequence whole on a replica, by formula"
        f" {time_text(formula_s, time_s)}; no dispatch saves more than {gap}"
    )
    yield Labelled([("dispatch", text)])


def static_text(document: LengthsDocument, name: str, alone_ns: int) -> Parts:
    """What the strategy that the user names takes, beside the step and the best single one."""
    alone_s, step_s, best = seconds(alone_ns), document.step_time_s, document.single
    text = f"{time_text(alone_s)} with {name}, {alone_s / step_s:.2f} times the step"
    if best is not None:
        text += f", {alone_s / seconds(best.step_ns):.2f} times the best single strategy"
    return [Labelled([("static", text)])]


#: Rows of a table; what busy GPUs send and receive stands before the rest.
MOST_ROWS = 40
#: Volumes of a GPU, bytes, in the order of the columns.
Sizes = tuple[int, ...]
COLUMNS = ("sent inside", "sent between", "received inside", "received between")


def gpu_names(cluster: Cluster) -> list[str]:
    """NODE:NUMBER of all GPUs, in the order of the cluster."""
    pairs = zip(cluster.node_names, cluster.node_groups, strict=True)
    return [f"{node}:{n}" for node, j in pairs for n in range(cluster.groups[j].gpus_per_node)]


def device_rows(document: SwitchDocument) -> list[tuple[str, Sizes]]:
    """GPUs and their volumes; GPUs of a node with equal volumes share a row."""
    names, alike = gpu_names(document.cluster), dict[tuple[str, Sizes], list[int]]()
    for device in document.devices:
        node, _, gpu = names[device.gpu].rpartition(":")
        alike.setdefault((node, astuple(device)[1:]), []).append(int(gpu))
    return [(f"{node}: {ranges(gpus)}", sizes) for (node, sizes), gpus in alike.items()]


def _volumes(rows: Sequence[tuple[str, Sizes]]) -> Grid:
    """In one unit, with its name in every cell but of nothing."""
    unit = size_unit(max(max(volumes) for _, volumes in rows))
    cells = [
        [name, *(unit.text(size) if size else "0" for size in volumes)] for name, volumes in rows
    ]
    return Grid(["node: GPUs, each"], COLUMNS, cells)


def switch_text(document: SwitchDocument) -> Parts:
    """Volumes by GPU, then figures."""
    if rows := device_rows(document):
        more = len(rows) - MOST_ROWS
        yield Group(_volumes(rows[:MOST_ROWS]), *[f"and {counted(more, 'more row')}"] * (more > 0))
    yield Labelled(_lines(document))


def switch_page(document: SwitchDocument) -> str:
    """One HTML file that needs nothing else: figures, volumes, who sends what to whom."""
    parts = [section("Switch", Labelled(_lines(document)))]
    if rows := device_rows(document):
        parts += [section("GPUs", _volumes(rows)), section("Sendings", _sendings(document))]
    return sections_page(f"{document.workload.name}: switch", parts)


def _sendings(document: SwitchDocument) -> Grid:
    names, slices = gpu_names(document.cluster), [moved.slices for moved in document.classes]
    return table_of(
        document.sendings,
        {
            "class": lambda way: f"{way.number}",
            "slices": lambda way: "; ".join(map(_slice_text, slices[way.number])),
            "from": lambda way: names[way.source],
            "by way of": lambda way: "" if way.via is None else names[way.via],
            "to": lambda way: ", ".join(names[gpu] for gpu in way.receivers if gpu != way.via),
        },
        {"bytes": lambda way: f"{way.begin:,} to {way.end:,}"},
    )


def _slice_text(piece: Slice) -> str:
    """Kind, tensors, layers and part, such as "parameters: matrices of layers 1-15, cut 2/8"."""
    first, last = piece.layers[0], piece.layers[1] - 1
    layers = f"layers {first}-{last}" if last > first else f"layer {first}"
    shares = (("experts", piece.experts), ("cut", piece.cut), ("split", piece.split))
    parts = [
        f"{name} {begin}-{end} of {units}"
        for name, (begin, end, units) in shares
        if end - begin < units
    ]
    return ", ".join([f"{piece.kind}: {piece.what} of {layers}", *parts])


def _lines(document: SwitchDocument) -> Lines:
    """What moves, how long it takes, what no plan beats, and what the published rule takes."""
    yield "workload", f"{document.workload.name}: {WORDS['moves'][document.moves]}"
    yield "from", _degrees(document.before)
    yield "to", _degrees(document.after)
    if not document.classes:
        yield "volume", "nothing moves: every GPU holds what it needs"
        return
    inside = sum(device.received_inside_bytes for device in document.devices)
    between = sum(device.received_between_bytes for device in document.devices)
    slices = [piece.layers for moved in document.classes for piece in moved.slices]
    num_slices = sum(end - start for start, end in slices)
    time_s, rule_s = document.time_s, document.published_s
    classes = counted(len(document.classes), "class")
    # The ports and links that the bound counts on
    zones, gpus = [zone or "" for zone in document.cluster.zones], gpu_names(document.cluster)
    places = {"send": gpus, "receive": gpus, "zone": zones}
    kinds: dict[str, list[str]] = {}
    for line in document.bound_by:
        name = places.get(line.what, document.cluster.node_names)[line.first]
        name += f" to {zones[line.second]}" if line.what == "zone" else ""
        kinds.setdefault(WORDS["channels"][line.what], []).append(name)
    limits = []
    for what, names in kinds.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        limits.append(f"{what} ({', '.join(names[:3])}{more})")
    bound = f"no plan takes less than {time_text(document.lower_bound_s, time_s)}"
    yield "volume", f"{size_text(inside)} inside nodes, {size_text(between)} between nodes"
    yield "slices", f"{num_slices:,} in {classes}, {counted(len(document.sendings), 'sending')}"
    yield "time", time_text(time_s)
    yield "bound", f"{bound}, gap {percent(document.gap)}; set by {', '.join(limits)}"
    yield "rule", f"{time_text(rule_s, time_s)} by the published rule, {rule_s / time_s:.2f} times"
    yield "search", time_text(document.runtime_s)


def _degrees(plan: Plan) -> str:
    config, tensor = plan.config, tensor_text(degrees_of(plan))
    shared = (("context", config.cp), ("experts", config.ep))
    more = "".join(f" x {name} {degree}" for name, degree in shared if degree > 1)
    degrees = f"tensor {tensor} x data {config.dp} x pipeline {config.pp}{more}"
    return f"{degrees}, {shards_text(config)}"
