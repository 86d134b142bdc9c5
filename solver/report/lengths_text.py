"""The strategies for a step of mixed lengths, and its dispatch, in tables for Rich."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from rich.console import RenderableType

from formulations.instance import Instance
from formulations.instance.rows import lengths_of
from formulations.lengths.problem import Measured, Mixed, Strategy
from formulations.lengths.tour import Tour, groups_ns
from formulations.units import seconds
from solver.lengths.dispatch import dispatch_group
from solver.report.layout import Grid, labelled, table
from solver.report.quantities import counted, percent, time_text

#: Of sequences of so many tokens the rows are shown.
SHOWN = (1024, 4096, 32768)


def strategies_text(instance: Instance, mixed: Mixed) -> list[RenderableType]:
    """What a step holds, then a table of the strategies for it."""
    workload, lengths = instance.workload, lengths_of(instance)
    tokens = sum(atom.tokens * atom.count for atom in mixed.atoms)
    sequences = sum(atom.count for atom in mixed.atoms)
    up_to = accumulate(atom.count for atom in mixed.atoms)
    half = next(n for n, count in enumerate(up_to) if 2 * count >= sequences)
    known = "as measured" if lengths.strategies else "by the model of cost, 1F1B schedule"
    lines = [
        ("workload", f"{workload.name}: {workload.parameters / 1e6:,.1f} million parameters"),
        (
            "lengths",
            f"{counted(sequences, 'sequence')} per step of {counted(len(mixed.atoms), 'length')},"
            f" {lengths.longest:,} tokens at most, half of them up to {mixed.atoms[half].tokens:,};"
            f" {tokens:,} tokens with all rounded up; source: {lengths.source}",
        ),
        ("rows", f"{mixed.rows}; times {known}"),
    ]
    return [labelled(lines), "", _strategy_table(mixed)]


def _strategy_table(mixed: Mixed) -> Grid:
    shown = _shown(mixed)
    rows = (f"{n // 1024}k ms" for n in shown)
    numbers = ["replicas", "stages", "longest row", *rows, "visit ms", "anchor ms"]
    known = [_strategy_row(one, list(shown.values())) for one in mixed.strategies]
    return table(["strategy"], numbers, known)


def _shown(mixed: Mixed) -> dict[int, int]:
    """Sequences of so many tokens are shown, and how long a row is that holds one."""
    if mixed.rows == "packed":
        return {n: n for n in SHOWN}
    tokens = [atom.tokens for atom in mixed.atoms]
    return {n: tokens[bisect_left(tokens, n)] for n in SHOWN if n <= tokens[-1]}


def _strategy_row(strategy: Strategy | Measured, rows: Sequence[int]) -> list[str]:
    """Times are those of the slowest replica's slowest stage, of rows that are one sequence."""
    once = [_milliseconds(ns) for ns in (strategy.visit_ns, strategy.anchor_ns)]
    if isinstance(strategy, Measured):
        return [strategy.name, *["-"] * (3 + len(rows)), *once]
    own = strategy.replicas
    return [
        strategy.name,
        str(len(own)),
        str(max(replica.stages for replica in own)),
        f"{strategy.longest:,}",
        *(_row_time(strategy, n) if n <= strategy.longest else "-" for n in rows),
        *once,
    ]


def _row_time(strategy: Strategy, tokens: int) -> str:
    times = [one.time.sequence_ns(tokens) + one.time.per_row_ns for one in strategy.replicas]
    return _milliseconds(max(times))


def _milliseconds(time_ns: int) -> str:
    return f"{seconds(time_ns) * 1e3:,.1f}"


def dispatch_text(mixed: Mixed, tour: Tour) -> list[RenderableType]:
    """What the groups take when their sequences are dealt out whole, beside their formula's time.

    Nothing where a group is not dealt out.
    """
    groups = [dispatch_group(mixed, group) for group in tour.groups]
    dealt = [group for group in groups if group is not None]
    visits_ns = sum(mixed.strategies[group.strategy].visit_ns for group in tour.groups)
    formula_ns = sum(ns or 0 for ns in groups_ns(mixed, tour)) - visits_ns
    if len(dealt) < len(groups):
        return []
    time_s, bound_s = (
        seconds(sum(ns)) for ns in ([g.time_ns for g in dealt], [g.bound_ns for g in dealt])
    )
    gap = percent(1 - bound_s / time_s if time_s else 0.0)
    text = (
        f"{time_text(time_s)} for all rows with whole sequences, by formula"
        f" {time_text(seconds(formula_ns), time_s)}; no dispatch takes {gap} less"
    )
    return [labelled([("dealt out", text)])]
