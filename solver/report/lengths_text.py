"""Steps of mixed sequence lengths: what they hold, and the strategies for them."""

from collections.abc import Sequence

from rich.console import RenderableType

from formulations.instance import Instance
from formulations.instance.rows import lengths_of
from formulations.lengths.problem import Mixed, Strategy
from formulations.units import seconds
from solver.report.layout import Grid, labelled, table
from solver.report.quantities import percent

#: Rows of so many tokens are shown.
SHOWN = (1024, 4096, 32768)


def strategies_text(
    instance: Instance, mixed: Mixed, above: Sequence[float], measured: bool
) -> list[RenderableType]:
    """The step in words, then a table of the strategies."""
    workload, lengths = instance.workload, lengths_of(instance)
    tokens = sum(atom.tokens * atom.count for atom in mixed.atoms)
    sequences = sum(atom.count for atom in mixed.atoms)
    below = sum(atom.count for atom in mixed.atoms if atom.tokens <= SHOWN[0])
    fit = "measured, as a l^2 + b l + c" if measured else "model of cost, as a l^2 + b l + c"
    lines = [
        ("workload", f"{workload.name}: {workload.parameters / 1e6:,.1f} million parameters"),
        (
            "lengths",
            f"{sequences:,} sequences per step in {len(mixed.atoms)} classes,"
            f" {below / sequences:.0%} of up to {SHOWN[0]} tokens, the longest"
            f" {lengths.longest}; {tokens:,} tokens with all rounded up; {lengths.source}",
        ),
        ("rows", mixed.rows),
        ("times of rows", f"{fit}, at most {percent(max(above))} above what is known"),
    ]
    return [labelled(lines), "", _table(mixed)]


def _table(mixed: Mixed) -> Grid:
    numbers = ["replicas", "stages", "longest row", *(f"{n // 1024}k ms" for n in SHOWN)]
    return table(["strategy"], numbers, [_row(one) for one in mixed.strategies])


def _row(strategy: Strategy) -> list[str]:
    """Times are those of the slowest replica's slowest stage, of rows that are one sequence."""
    own = strategy.replicas
    return [
        strategy.name,
        str(len(own)),
        str(max(replica.stages for replica in own)),
        str(strategy.longest),
        *(_time(strategy, n) if n <= strategy.longest else "-" for n in SHOWN),
    ]


def _time(strategy: Strategy, tokens: int) -> str:
    times = [one.time.sequence_ns(tokens) + one.time.per_row_ns for one in strategy.replicas]
    return f"{seconds(max(times)) * 1e3:,.1f}"
