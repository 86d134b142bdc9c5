"""A step of mixed lengths: in words and tables for Rich, and as a page."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from rich.console import RenderableType

from formulations.instance import Instance
from formulations.lengths.problem import Mixed
from formulations.lengths.row_times import lengths_of
from formulations.lengths.tour import GroupFigures, Hop
from formulations.units import seconds
from solver.lengths.dispatch import dispatch_group
from solver.lengths_document import LengthsDocument
from solver.report.html.page import section, sections_page
from solver.report.layout import Grid, Labelled, Lines
from solver.report.quantities import counted, percent, time_text, time_unit

#: Of sequences of so many tokens the rows are shown.
SHOWN = (1024, 4096, 32768)


def step_text(document: LengthsDocument) -> list[RenderableType]:
    """Groups in the order of the step, then figures."""
    return [_groups(document), "", Labelled(lines(document))]


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
    for switch, group in _in_order(document):
        switch_s = seconds(switch.time_ns or 0) if switch else 0.0
        if group is None:
            rows.append([f"back to {names[document.anchor]}", *[""] * 4, unit.text(switch_s)])
            continue
        # "4 x 12" where four replicas have as many rows, empty if they are not known
        rows_each = ", ".join(
            f"{n:,} x {num_rows:,}" if n > 1 else f"{num_rows:,}"
            for num_rows, n in Counter(group.micro_batches).items()
        )
        times = [unit.text(seconds(group.time_ns)), unit.text(switch_s)]
        name = names[group.strategy]
        rows.append([name, _tokens(group), f"{group.sequences:,}", rows_each, *times])
    numbers = ("sequences", "micro-batches", "time", "switch before")
    return Grid(("strategy", "tokens"), numbers, rows)


def _in_order(document: LengthsDocument) -> Iterator[tuple[Hop | None, GroupFigures | None]]:
    """The groups, each with the switch before it if there is one; a last switch without group."""
    before, switches = document.anchor, list(document.switches)
    for group in document.groups:
        yield switches.pop(0) if group.strategy != before else None, group
        before = group.strategy
    yield from ((switch, None) for switch in switches)


def _tokens(group: GroupFigures) -> str:
    return ", ".join(f"{above + 1:,}-{up_to:,}" for above, up_to in group.buckets)


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
    return [
        ("workload", f"{document.workload}: {atoms}, {problem.rows}"),
        ("step", time_text(step_s) + (f", of it {', '.join(shares)}" if shares else "")),
        ("best single", single_text),
        ("anchor", f"{anchor.name} holds the fp32 state: the step begins and ends there"),
        ("bound", f"{proved} {time_text(document.lower_bound_s, step_s)}"),
        ("gap", f"{percent(document.gap)} ({document.status})"),
        *([("row times", rows)] if replicas else []),
        ("search", f"{time_text(document.runtime_s)}, {document.termination.replace('_', ' ')}"),
    ]


def strategies_text(instance: Instance, mixed: Mixed) -> list[RenderableType]:
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
    return [Labelled(labels), "", _strategies(mixed)]


def _strategies(mixed: Mixed) -> Grid:
    """Times are those of the slowest replica's slowest stage, of rows that are one sequence."""
    shown = {n: n for n in SHOWN}  # sequences of so many tokens, and how long their row is
    if mixed.rows == "padded":
        tokens = [atom.tokens for atom in mixed.atoms]
        shown = {n: tokens[bisect_left(tokens, n)] for n in SHOWN if n <= tokens[-1]}
    headings = (f"{n // 1024}k ms" for n in shown)
    numbers = ["replicas", "stages", "longest row", *headings, "visit ms", "anchor ms"]
    rows = []
    for strategy in mixed.strategies:
        cells = ["-"] * (3 + len(shown))
        if strategy.replicas:
            stages = max(replica.stages for replica in strategy.replicas)
            times = [replica.time for replica in strategy.replicas]
            cells = [str(strategy.dp), str(stages), f"{strategy.longest:,}"]
            cells += [
                _milliseconds(max(time.sequence_ns(n) + time.per_row_ns for time in times))
                if n <= strategy.longest
                else "-"
                for n in shown.values()
            ]
        once = [_milliseconds(ns) for ns in (strategy.visit_ns, strategy.anchor_ns)]
        rows.append([strategy.name, *cells, *once])
    return Grid(["strategy"], numbers, rows)


def _milliseconds(time_ns: int) -> str:
    return f"{seconds(time_ns) * 1e3:,.1f}"


def dispatch_text(document: LengthsDocument) -> list[RenderableType]:
    """What groups dealt out whole take, beside the formula; nothing where one is not dealt out."""
    problem = document.problem
    dealt = [dispatch_group(problem, group) for group in document.tour.groups]
    groups = [group for group in dealt if group is not None]
    if len(groups) < len(dealt):
        return []
    visits_ns = sum(problem.strategies[group.strategy].visit_ns for group in document.groups)
    formula_s = seconds(sum(group.time_ns for group in document.groups) - visits_ns)
    time_s = seconds(sum(group.time_ns for group in groups))
    bound_s = seconds(sum(group.bound_ns for group in groups))
    gap = percent(1 - bound_s / time_s if time_s else 0.0)
    text = (
        f"{time_text(time_s)} for all rows with whole sequences, by formula"
        f" {time_text(formula_s, time_s)}; no dispatch takes {gap} less"
    )
    return [Labelled([("dealt out", text)])]
