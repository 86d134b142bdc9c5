"""A step of mixed lengths: in words and tables for Rich, as a page, and as an SVG 1.1 picture."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from rich.console import RenderableType

from formulations.instance import Instance
from formulations.lengths.problem import Mixed
from formulations.lengths.row_times import lengths_of
from formulations.lengths.tour import GroupFigures, Hop
from formulations.units import seconds
from solver.lengths.dispatch import dispatch_group
from solver.lengths_document import LengthsDocument
from solver.report.chart import LETTER, bar, key, picture, round_part, upright_lines, written
from solver.report.html.page import section, sections_page
from solver.report.layout import Grid, Labelled, Lines
from solver.report.quantities import counted, percent, round_time_text, time_text, time_unit

#: Of sequences of so many tokens the rows are shown.
SHOWN = (1024, 4096, 32768)

# Sizes and colours of the picture
_WIDTH, _LEFT, _RIGHT, _BAR, _GAP = 900, 110, 60, 46, 14
_TOP, _LINE = 64, 22
_FILLS = ["#4c86c6", "#3f9a5b", "#e39a2d", "#b279c9", "#b5567f", "#8c6d5a", "#5fb3b3", "#a3a832"]
_SWITCH, _VISIT, _ANCHOR = "#d62728", "#555", "#111"
_OTHERS = {_SWITCH: "switches", _VISIT: "reduction of gradients", _ANCHOR: "optimizer"}
_STYLE = ".n{fill:#fff;text-anchor:middle}"


def step_text(document: LengthsDocument) -> list[RenderableType]:
    """Groups in the order of the step, then figures."""
    return [_groups(document), "", Labelled(lines(document))]


def lengths_page(document: LengthsDocument) -> str:
    """One HTML file that needs nothing else: picture, groups, figures and all strategies."""
    parts = [
        section("Step", lengths_picture(document)),
        section("Groups", _groups(document).html()),
        section("Figures", Labelled(lines(document)).html()),
        section("Strategies", _strategies(document.problem).html()),
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
    lengths = document.instance and document.instance.lengths
    measured = lengths.strategies if lengths else ()
    if single_rows := [m.title for m in measured if len(m.row_times or ()) == 1]:
        rows += f"; of {', '.join(single_rows)}, with a single row, by the model's FLOPs"
    single_text, single = "no strategy takes all sequences", document.single
    if single is not None:
        alone_s = seconds(single.step_ns)
        single_text = f"{time_text(alone_s)} with {problem.strategies[single.strategy].name}"
        if step_s == alone_s:
            single_text += ": no switch pays"
        else:
            single_text += f", {alone_s / step_s if step_s else 1.0:.2f} times as long"
    least = f"no step in {orders[document.order]} takes less than"
    atoms = f"{sequences:,} sequences of {counted(len(problem.atoms), 'length')}"
    return [
        ("workload", f"{document.workload}: {atoms}, {problem.rows}"),
        ("step", time_text(step_s) + (f", of it {', '.join(shares)}" if shares else "")),
        ("best single", single_text),
        ("anchor", f"{anchor.name} holds the fp32 state: the step begins and ends there"),
        ("bound", f"{least} {time_text(document.lower_bound_s, step_s)}"),
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


class _Part(NamedTuple):
    """A part of a bar; number: of its group's rows, from 1, None for any other part."""

    time_s: float
    fill: str
    text: str
    number: int | None = None


def lengths_picture(document: LengthsDocument) -> str:
    """The parts of the step in time, below them the best single strategy, and every group."""
    strategies, single = document.problem.strategies, document.single
    step, alone = list[_Part](), list[_Part]()
    for number, (switch, group) in enumerate(_in_order(document), 1):
        if switch is not None:
            moves = "parameters and gradients" if switch.moves == "both" else switch.moves
            time_s = seconds(switch.time_ns or 0)
            text = f"switch of {moves} to {strategies[switch.enters].name}, {time_text(time_s)}"
            step.append(_Part(time_s, _SWITCH, text))
        if group is not None:
            what = f"{_tokens(group)} tokens"
            step += _run(document, group.strategy, group.time_ns, what, number)
    step += _optimizer(document, document.anchor)
    if single is not None:
        rows_ns = single.step_ns - strategies[single.strategy].anchor_ns
        alone += _run(document, single.strategy, rows_ns, "all sequences")
        alone += _optimizer(document, single.strategy)
    longest_s = max(document.step_time_s, seconds(single.step_ns) if single else 0.0) or 1.0
    scale = _WIDTH / longest_s
    second = _TOP + _BAR + _GAP
    bottom = second + _BAR if single else _TOP + _BAR
    # Round ticks of time
    tick_s = round_part(longest_s, 8)
    ticks = [round(n * tick_s, 12) for n in range(int(longest_s / tick_s) + 1)]
    places = ((_LEFT + scale * time_s, round_time_text(time_s, longest_s)) for time_s in ticks)
    parts = [
        *upright_lines(places, _TOP - 8, bottom + 6, 14),
        written(16, _TOP + _BAR / 2 + 4, "this step"),
        *_row(step, _TOP, scale),
    ]
    if single is not None:
        name, y = strategies[single.strategy].name, second + _BAR / 2 + 4
        text = f"{name}, alone: {time_text(seconds(single.step_ns))}"
        parts += [written(16, y, "best single"), *_row(alone, second, scale)]
        parts.append(written(_LEFT + 8, y, text, ' style="fill:#fff"'))
    # A line for each group, and one for each kind of what is between, with its times in both
    keys = [(part.fill, f"{part.number}. {part.text}") for part in step if part.number is not None]
    for fill, name in _OTHERS.items():
        step_s, alone_s = (
            sum(part.time_s for part in row if part.fill == fill) for row in (step, alone)
        )
        if step_s or alone_s:
            also = f"; best single: {time_text(alone_s)}" if alone_s else ""
            keys.append((fill, f"{name}: {time_text(step_s)}{also}"))
    for n, (fill, text) in enumerate(keys):
        parts += key(16, bottom + 44 + n * _LINE, text, fill)
    height = bottom + 44 + _LINE * (len(document.groups) + len(_OTHERS))
    title = f"{document.workload}: a step of {time_text(document.step_time_s)}"
    return picture(title, _LEFT + _WIDTH + _RIGHT, height, parts, _STYLE, "lengths")


def _run(
    document: LengthsDocument, strategy: int, time_ns: int, what: str, number: int | None = None
) -> Iterator[_Part]:
    """Rows of a strategy, and the reduction of gradients behind them."""
    runs = document.problem.strategies[strategy]
    rows_s, reduced_s = seconds(time_ns - runs.visit_ns), seconds(runs.visit_ns)
    # A colour for each strategy of the step, in the order in which they come; another one
    used = list(dict.fromkeys(group.strategy for group in document.groups))
    fill = _FILLS[(used.index(strategy) if strategy in used else len(used)) % len(_FILLS)]
    yield _Part(rows_s, fill, f"{runs.name}: {what}, {time_text(rows_s)}", number)
    if reduced_s:
        text = f"gradients reduced by {runs.name}, {time_text(reduced_s)}"
        yield _Part(reduced_s, _VISIT, text)


def _optimizer(document: LengthsDocument, anchor: int) -> Iterator[_Part]:
    strategy = document.problem.strategies[anchor]
    if once_s := seconds(strategy.anchor_ns):
        yield _Part(once_s, _ANCHOR, f"optimizer of {strategy.name}, {time_text(once_s)}")


def _row(parts: list[_Part], top: float, scale: float) -> Iterator[str]:
    """Parts one behind another; those of groups with their numbers where they have room."""
    x: float = _LEFT
    for part in parts:
        width = scale * part.time_s
        yield bar(x, top, width, _BAR, part.fill, part.text)
        if part.number is not None and width >= 3 * LETTER:
            yield written(x + width / 2, top + _BAR / 2 + 4, str(part.number), ' class="n"')
        x += width
