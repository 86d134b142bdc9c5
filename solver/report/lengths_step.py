"""A step of mixed lengths in words and tables. Returns what Rich can render."""

from rich.console import RenderableType

from formulations.units import seconds
from solver.lengths_document import GroupDocument, LengthsDocument
from solver.report.layout import Lines, labelled, table
from solver.report.quantities import counted, percent, time_text, time_unit

TEXTS = ("strategy", "tokens")
NUMBERS = ("sequences", "micro-batches", "time", "switch before")


def step_text(document: LengthsDocument) -> list[RenderableType]:
    """Groups in the order of the step, then figures."""
    return [table(list(TEXTS), list(NUMBERS), group_rows(document)), "", labelled(lines(document))]


def group_rows(document: LengthsDocument) -> list[list[str]]:
    """Strategy, lengths, sequences, rows of each replica, time, and the switch that leads to it."""
    unit, rows = time_unit(document.step_time_s), list[list[str]]()
    switches = list(document.switches)
    before = document.anchor
    for group in document.groups:
        switch_s = switches.pop(0).time_s if group.strategy != before else 0.0
        before = group.strategy
        rows.append(
            [
                strategy_name(document, group.strategy),
                buckets_text(group),
                f"{group.sequences:,}",
                _micro_batches(group),
                unit.text(group.time_s),
                unit.text(switch_s),
            ]
        )
    if switches:
        name = f"back to {strategy_name(document, document.anchor)}"
        rows.append([name, "", "", "", "", unit.text(switches[0].time_s)])
    return rows


def strategy_name(document: LengthsDocument, strategy: int) -> str:
    """As the problem calls it."""
    return document.problem.strategies[strategy].name


def buckets_text(group: GroupDocument) -> str:
    """Ranges of tokens that a group runs, such as "1-1,024, 4,097-8,192"."""
    return ", ".join(f"{above + 1:,}-{up_to:,}" for above, up_to in group.buckets)


def _micro_batches(group: GroupDocument) -> str:
    """Rows of each replica; "4 x 12" where four have as many, empty if they are not known."""
    counts = dict.fromkeys(group.micro_batches, 0)
    for rows in group.micro_batches:
        counts[rows] += 1
    return ", ".join(f"{n:,} x {rows:,}" if n > 1 else f"{rows:,}" for rows, n in counts.items())


def lines(document: LengthsDocument) -> Lines:
    """What the step takes beside the best single strategy, and what is proved."""
    step_s, problem = document.step_time_s, document.problem
    sequences = sum(atom.count for atom in problem.atoms)
    lengths = counted(len(problem.atoms), "length")
    orders = {"ascending": "ascending lengths", "free": "any order"}
    bound = f"no step in {orders[document.order]} takes less than"
    held = strategy_name(document, document.anchor)
    known = "the model of cost" if document.plans else "what was measured"
    rows = f"a l^2 + b l + c, at most {percent(max(document.above, default=0.0))} above {known}"
    if any(own.rows_ns for one in problem.strategies for own in one.replicas):
        rows = f"of every length as {known} has them"
    if single := _of_one_row(document):
        rows += f"; of {', '.join(single)}, with a single row, by the model's FLOPs"
    return [
        ("workload", f"{document.workload}: {sequences:,} sequences of {lengths}, {problem.rows}"),
        ("step", f"{time_text(step_s)}{_parts(document)}"),
        ("best single", _single(document)),
        ("anchor", f"{held} holds the fp32 state: the step begins and ends there"),
        ("bound", f"{bound} {time_text(document.lower_bound_s, step_s)}"),
        ("gap", f"{percent(document.gap)} ({document.status})"),
        *([("row times", rows)] if any(one.replicas for one in problem.strategies) else []),
        ("search", f"{time_text(document.runtime_s)}, {document.termination.replace('_', ' ')}"),
    ]


def _of_one_row(document: LengthsDocument) -> list[str]:
    """Measured strategies of which one row's time says those of all others."""
    lengths = document.instance and document.instance.lengths
    strategies = lengths.strategies if lengths else ()
    return [measured.name for measured in strategies if len(measured.row_times_s) == 1]


def visit_s(document: LengthsDocument, strategy: int) -> float:
    """Of the time of a group, that to reduce gradients."""
    return seconds(document.problem.strategies[strategy].visit_ns)


def anchor_s(document: LengthsDocument, strategy: int) -> float:
    """At the end of a step that the strategy holds, optimizer and gather of parameters."""
    return seconds(document.problem.strategies[strategy].anchor_ns)


def _parts(document: LengthsDocument) -> str:
    """What of a step is no rows."""
    parts = {
        "switches": sum(one.time_s for one in document.switches),
        "reduction of gradients": sum(
            visit_s(document, group.strategy) for group in document.groups
        ),
        "optimizer": anchor_s(document, document.anchor),
    }
    whole_s = document.step_time_s
    known = [f"{time_text(one, whole_s)} in {name}" for name, one in parts.items() if one]
    return f", of it {', '.join(known)}" if known else ""


def _single(document: LengthsDocument) -> str:
    one = document.single
    if one is None:
        return "no strategy takes all sequences"
    name, step_s = strategy_name(document, one.strategy), one.step_time_s
    if document.step_time_s == step_s:
        return f"{time_text(step_s)} with {name}: no switch pays"
    share = step_s / document.step_time_s if document.step_time_s else 1.0
    return f"{time_text(step_s)} with {name}, {share:.2f} times as long"
