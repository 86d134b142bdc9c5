"""A step of mixed lengths: in words and tables for Rich, and as a page."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from rich.console import RenderableType

from formulations.instance import Instance
from formulations.lengths.problem import Mixed, Strategy
from formulations.lengths.row_times import lengths_of
from formulations.lengths.tour import GroupFigures, Tour, groups_ns
from formulations.units import seconds
from solver.lengths.dispatch import dispatch_group
from solver.lengths_document import LengthsDocument
from solver.report.html.page import section, sections_page
from solver.report.layout import Grid, Lines, labelled, table
from solver.report.lengths_picture import lengths_picture
from solver.report.quantities import counted, percent, time_text, time_unit

#: Of sequences of so many tokens the rows are shown.
SHOWN = (1024, 4096, 32768)
#: Columns of the groups: of text, of numbers; of the strategies on the page.
TEXTS = ("strategy", "tokens")
NUMBERS = ("sequences", "micro-batches", "time", "switch before")
_STRATEGIES = ("strategy", "replicas", "stages", "longest row", "visit", "as anchor")


def step_text(document: LengthsDocument) -> list[RenderableType]:
    """Groups in the order of the step, then figures."""
    return [table(list(TEXTS), list(NUMBERS), _group_rows(document)), "", labelled(lines(document))]


def lengths_page(document: LengthsDocument) -> str:
    """One HTML file that needs nothing else: picture, groups, figures and all strategies."""
    strategies = []
    for strategy in document.problem.strategies:
        layout = ["measured", "", ""]
        if strategy.replicas:
            stages = sorted({replica.stages for replica in strategy.replicas})
            layout = [f"{strategy.dp:,}", ", ".join(map(str, stages)), f"{strategy.longest:,}"]
        once = [time_text(seconds(ns)) for ns in (strategy.visit_ns, strategy.anchor_ns)]
        strategies.append([strategy.name, *layout, *once])
    parts = [
        section("Step", lengths_picture(document)),
        section("Groups", table(TEXTS, NUMBERS, _group_rows(document)).html()),
        section("Figures", labelled(lines(document)).html()),
        section("Strategies", table(_STRATEGIES[:1], _STRATEGIES[1:], strategies).html()),
    ]
    return sections_page(f"{document.workload}: mixed lengths", parts)


def _group_rows(document: LengthsDocument) -> list[list[str]]:
    """Strategy, lengths, sequences, rows of each replica, time, and the switch that leads to it."""
    unit, rows = time_unit(document.step_time_s), list[list[str]]()
    names = [strategy.name for strategy in document.problem.strategies]
    switches = [seconds(hop.time_ns or 0) for hop in document.switches]
    before = document.anchor
    for group in document.groups:
        switch_s = switches.pop(0) if group.strategy != before else 0.0
        before = group.strategy
        rows.append(
            [
                names[group.strategy],
                ", ".join(f"{above + 1:,}-{up_to:,}" for above, up_to in group.buckets),
                f"{group.sequences:,}",
                _micro_batches(group),
                unit.text(seconds(group.time_ns)),
                unit.text(switch_s),
            ]
        )
    if switches:
        rows.append([f"back to {names[document.anchor]}", *[""] * 4, unit.text(switches[0])])
    return rows


def _micro_batches(group: GroupFigures) -> str:
    """Rows of each replica; "4 x 12" where four have as many, empty if they are not known."""
    counts = Counter(group.micro_batches)
    return ", ".join(f"{n:,} x {rows:,}" if n > 1 else f"{rows:,}" for rows, n in counts.items())


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
    above = percent(max(document.above, default=0.0))
    rows = f"a l^2 + b l + c, at most {above} above {model}"
    if any(replica.time.rows_ns for replica in replicas):
        rows = f"of every length as {model} has them"
    lengths = document.instance and document.instance.lengths
    measured = lengths.strategies if lengths else ()
    if single_rows := [one.title for one in measured if len(one.row_times or ()) == 1]:
        rows += f"; of {', '.join(single_rows)}, with a single row, by the model's FLOPs"
    least = f"no step in {orders[document.order]} takes less than"
    return [
        (
            "workload",
            f"{document.workload}: {sequences:,} sequences of"
            f" {counted(len(problem.atoms), 'length')}, {problem.rows}",
        ),
        ("step", time_text(step_s) + (f", of it {', '.join(shares)}" if shares else "")),
        ("best single", _single(document)),
        ("anchor", f"{anchor.name} holds the fp32 state: the step begins and ends there"),
        ("bound", f"{least} {time_text(document.lower_bound_s, step_s)}"),
        ("gap", f"{percent(document.gap)} ({document.status})"),
        *([("row times", rows)] if replicas else []),
        ("search", f"{time_text(document.runtime_s)}, {document.termination.replace('_', ' ')}"),
    ]


def _single(document: LengthsDocument) -> str:
    single = document.single
    if single is None:
        return "no strategy takes all sequences"
    alone_s = seconds(single.step_ns)
    text = f"{time_text(alone_s)} with {document.problem.strategies[single.strategy].name}"
    if document.step_time_s == alone_s:
        return f"{text}: no switch pays"
    share = alone_s / document.step_time_s if document.step_time_s else 1.0
    return f"{text}, {share:.2f} times as long"


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
    return [labelled(labels), "", _strategy_table(mixed)]


def _strategy_table(mixed: Mixed) -> Grid:
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
            cells = [str(strategy.dp), str(stages), f"{strategy.longest:,}"]
            cells += _row_times(strategy, list(shown.values()))
        once = [_milliseconds(ns) for ns in (strategy.visit_ns, strategy.anchor_ns)]
        rows.append([strategy.name, *cells, *once])
    return table(["strategy"], numbers, rows)


def _row_times(strategy: Strategy, lengths: Sequence[int]) -> list[str]:
    times = [replica.time for replica in strategy.replicas]
    return [
        _milliseconds(max(time.sequence_ns(n) + time.per_row_ns for time in times))
        if n <= strategy.longest
        else "-"
        for n in lengths
    ]


def _milliseconds(time_ns: int) -> str:
    return f"{seconds(time_ns) * 1e3:,.1f}"


def dispatch_text(mixed: Mixed, tour: Tour) -> list[RenderableType]:
    """What the groups take when their sequences are dealt out whole, beside their formula's time.

    Nothing where a group is not dealt out.
    """
    groups = [dispatch_group(mixed, group) for group in tour.groups]
    dealt = [group for group in groups if group is not None]
    if len(dealt) < len(groups):
        return []
    visits_ns = sum(mixed.strategies[group.strategy].visit_ns for group in tour.groups)
    formula_s = seconds(sum(ns or 0 for ns in groups_ns(mixed, tour)) - visits_ns)
    time_s = seconds(sum(group.time_ns for group in dealt))
    bound_s = seconds(sum(group.bound_ns for group in dealt))
    gap = percent(1 - bound_s / time_s if time_s else 0.0)
    text = (
        f"{time_text(time_s)} for all rows with whole sequences, by formula"
        f" {time_text(formula_s, time_s)}; no dispatch takes {gap} less"
    )
    return [labelled([("dealt out", text)])]
