"""Printing: the same text whether or not a terminal looks on, and whoever reads it."""

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import typer

from formulations.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from solver.clusters.search import FamilyProgress
    from solver.search.progress import Progress


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Prints to stdout or stderr; characters that it cannot show are escaped.

    A reader that has gone (`| head`) is no error: the rest is dropped, and the exit code says what
    it would have said. Raises PlannerError where stdout cannot be written for another reason.
    """
    stream = sys.stderr if err else sys.stdout
    if stream is None:  # closed by the shell: `>&-`
        return
    encoding = stream.encoding or "utf-8"
    shown = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        typer.echo(shown + end, file=stream, nl=False)
    except OSError as error:
        _silence(stream)
        if not err and not isinstance(error, BrokenPipeError):
            raise PlannerError(f"cannot print to stdout: {error.strerror}") from error


def _silence(stream: TextIO) -> None:
    """Sends what is still to come to nowhere, also what Python flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def print_either(
    as_json: bool, data: "Callable[[], object]", text: "Callable[[], Sequence[RenderableType]]"
) -> None:
    """Prints one JSON object, or else a report."""
    if as_json:
        say(json.dumps(data(), indent=1))
    else:
        print_report(text())


def print_report(parts: "Sequence[RenderableType]") -> None:
    """Prints to stdout, 100 columns wide and without colours if that is no terminal."""
    from solver.report.layout import draw

    terminal = sys.stdout is not None and sys.stdout.isatty()
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    drawn = io.BytesIO()
    page = io.TextIOWrapper(drawn, encoding, errors="backslashreplace", write_through=True)
    draw(parts, page, terminal=terminal)
    for line in drawn.getvalue().decode(encoding).splitlines():
        say(line.rstrip())


def _state(progress: "Progress") -> str:
    from solver.report.quantities import percent, time_text

    def text(time_ns: int | None) -> str:
        return "none yet" if time_ns is None else time_text(time_ns / 1e9)

    gap = "unknown" if progress.gap is None else percent(progress.gap)
    return (
        f"best plan {text(progress.incumbent_ns)}, bound {text(progress.bound_ns)}, gap {gap}, "
        f"{progress.elapsed_s:.0f} s{_left(progress)}"
    )


def _left(progress: "Progress") -> str:
    """How long it may still take, where that is known."""
    return "" if progress.left_s is None else f", at most {progress.left_s:.0f} s to go"


@contextmanager
def _bar(what: str) -> "Iterator[Callable[[int, int, str], None] | None]":
    """A function that shows how many of how many, and a text, on stderr if that is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Display
    from rich.table import Column

    columns = (
        TextColumn(what + " {task.completed:.0f} of {task.total:.0f}"),
        BarColumn(bar_width=20),
        TextColumn("{task.description}", table_column=Column(ratio=1)),  # takes the lines it needs
    )
    with Display(*columns, console=Console(stderr=True), transient=True, expand=True) as display:
        task = display.add_task("starting", total=0)

        def show(completed: int, total: int, text: str) -> None:
            display.update(task, completed=completed, total=total, description=text)

        yield show


@contextmanager
def progress_display() -> "Iterator[Callable[[Progress], None] | None]":
    """A function that shows search progress on stderr; None where that is no terminal."""
    with _bar("shapes closed") as bar:
        if bar is None:
            yield None
            return
        show = bar

        def tell(progress: "Progress") -> None:
            show(progress.shapes_closed, progress.shapes_total, _state(progress))

        yield tell


@contextmanager
def family_display() -> "Iterator[Callable[[FamilyProgress], None] | None]":
    """A function that shows on stderr how far a search over clusters is; None: no terminal."""
    from solver.report.quantities import percent

    with _bar("clusters closed") as bar:
        if bar is None:
            yield None
            return
        show = bar

        def tell(progress: "FamilyProgress") -> None:
            within, left = progress.within, progress.clusters_total - progress.clusters_closed
            gap = "unknown" if progress.gap is None else percent(progress.gap)
            pace_s = progress.elapsed_s / max(progress.clusters_closed, 1)
            text = (
                f"{progress.front_size} on the front, gap {gap}, {progress.elapsed_s:.0f} s, "
                f"some {left * pace_s:.0f} s left; now {'+'.join(map(str, progress.now))}"
            )
            if within is not None:
                shapes = f"{within.shapes_closed} of {within.shapes_total} shapes closed"
                text += f": {shapes}, {_state(within)}"
            show(progress.clusters_closed, progress.clusters_total, text)

        yield tell


@contextmanager
def steps_display(what: str) -> "Iterator[Callable[[int, int], None]]":
    """A function that shows how many of how many are done on stderr, if that is a terminal."""
    with _bar(what) as bar:

        def tell(done: int, total: int) -> None:
            if bar is not None:
                bar(done, total, "")

        yield tell
