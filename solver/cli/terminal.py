"""Printing: the same text whether or not a terminal looks on."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from solver.search.progress import Progress

WIDTH = 100  # columns where no terminal says otherwise


def print_report(parts: "Sequence[RenderableType]") -> None:
    """Prints to stdout, 100 columns wide and without colours if that is no terminal."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else WIDTH, highlight=False, emoji=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part, markup=False, soft_wrap=isinstance(part, str))
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def _state(progress: "Progress") -> str:
    from solver.report.quantities import percent, time_text

    def text(time_ns: int | None) -> str:
        return "none yet" if time_ns is None else time_text(time_ns / 1e9)

    gap = "unknown" if progress.gap is None else percent(progress.gap)
    return (
        f"best plan {text(progress.incumbent_ns)}, bound {text(progress.bound_ns)}, gap {gap}, "
        f"{progress.elapsed_s:.0f} s"
    )


@contextmanager
def progress_display() -> "Iterator[Callable[[Progress], None] | None]":
    """A function that shows search progress on stderr; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Display

    columns = (
        TextColumn("shapes closed {task.completed:.0f} of {task.total:.0f}"),
        BarColumn(bar_width=20),
        TextColumn("{task.description}"),
    )
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("starting", total=0)

        def show(progress: "Progress") -> None:
            display.update(
                task,
                completed=progress.shapes_closed,
                total=progress.shapes_total,
                description=_state(progress),
            )

        yield show
