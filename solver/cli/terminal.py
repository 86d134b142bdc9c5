"""Printing: the same text whether or not a terminal looks on, and whoever reads it."""

import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVarTuple

import typer

from formulations.errors import PlannerError
from solver.report.quantities import percent, time_text

if TYPE_CHECKING:
    from solver.clusters.search import FamilyProgress
    from solver.report.layout import Parts
    from solver.search.plan_search import Progress

Told = TypeVarTuple("Told")


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
        # What is still to come goes to nowhere, also what Python flushes at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        if not err and not isinstance(error, BrokenPipeError):
            raise PlannerError(f"cannot print to stdout: {error.strerror}") from error


def print_either(
    as_json: bool, data: Callable[[*Told], object], text: "Callable[[*Told], Parts]", *told: *Told
) -> None:
    """Prints one JSON object, or else a report, of what is told."""
    if as_json:
        say(json.dumps(data(*told), indent=1))
    else:
        print_report(text(*told))


def print_report(parts: "Parts") -> None:
    """Prints to stdout, 100 columns wide and without colours if that is no terminal."""
    from solver.report.layout import draw

    terminal = sys.stdout is not None and sys.stdout.isatty()
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    drawn = io.BytesIO()
    page = io.TextIOWrapper(drawn, encoding, errors="backslashreplace", write_through=True)
    draw(parts, page, terminal=terminal)
    for line in drawn.getvalue().decode(encoding).splitlines():
        say(line.rstrip())


#: Seconds to the first line of progress in a log; each next one takes twice as long, up to these.
FIRST_S, MOST_S = 2.0, 60.0


class _Steps:
    """What displays say: counts, a text, and seconds, which go on while nothing else does."""

    def __init__(self) -> None:
        self.counts, self.text, self.started_s = "", "starting", time.monotonic()
        self.limit_s: float | None = None

    def show(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        """Takes what is done now; left_s: seconds until a time limit."""
        self.counts, self.text = f" {done} of {total}", text
        self.limit_s = None if left_s is None else time.monotonic() + left_s

    def __str__(self) -> str:
        now_s = time.monotonic()
        to_go = f", at most {max(0.0, self.limit_s - now_s):.0f} s to go" if self.limit_s else ""
        return f"{self.text}, " * bool(self.text) + f"{now_s - self.started_s:.0f} s{to_go}"


def _tell(what: str, steps: _Steps, over: threading.Event) -> None:
    wait_s = FIRST_S
    while not over.wait(wait_s):
        say(f"{what}{steps.counts}: {steps}", err=True)
        wait_s = min(2 * wait_s, MOST_S)


@contextmanager
def steps_display(what: str) -> Iterator[Callable[..., None]]:
    """`_Steps.show` of what is shown on stderr until the end, or told where no terminal looks."""
    steps, over = _Steps(), threading.Event()
    if sys.stderr is None or not sys.stderr.isatty():
        thread = threading.Thread(target=_tell, args=(what, steps, over), daemon=True)
        thread.start()
        try:
            yield steps.show
        finally:
            over.set()
            thread.join()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    columns = (
        TextColumn(what + "{task.fields[steps].counts}"),
        BarColumn(bar_width=20),
        # drawn anew ten times a second; takes the lines it needs
        TextColumn("{task.fields[steps]}", table_column=Column(ratio=1)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bar:
        task = bar.add_task("", total=None, steps=steps)

        def show(done: int, total: int, *more: Any) -> None:
            steps.show(done, total, *more)
            bar.update(task, completed=done, total=total)

        yield show


@contextmanager
def progress_display() -> "Iterator[Callable[[Progress], None]]":
    """A function that shows search progress on stderr."""
    with steps_display("configurations closed") as show:
        yield lambda now: show(now.configs_closed, now.configs_total, _search_text(now), now.left_s)


@contextmanager
def family_display() -> "Iterator[Callable[[FamilyProgress], None]]":
    """A function that shows on stderr how far a search over clusters is."""
    with steps_display("clusters closed") as show:
        yield lambda now: show(now.clusters.closed, now.total, _family_text(now))


def _search_text(progress: "Progress") -> str:
    times_ns = progress.incumbent_ns, progress.bound_ns
    incumbent, bound = ("none yet" if ns is None else time_text(ns / 1e9) for ns in times_ns)
    return f"best plan {incumbent}, bound {bound}, gap {gap_text(progress.gap)}"


def _family_text(progress: "FamilyProgress") -> str:
    """The front, how long it may take at this pace, and the search in the cluster at hand."""
    clusters = progress.clusters
    left_s = len(clusters.open) * progress.elapsed_s / max(clusters.closed, 1)
    text = (
        f"{clusters.front} on the front, gap {gap_text(clusters.gap)}, some {left_s:.0f} s left; "
        f"now {'+'.join(map(str, progress.now))}"
    )
    if (within := progress.within) is None:
        return text
    configs = f"{within.configs_closed} of {within.configs_total} configurations closed"
    return f"{text}: {configs}, {_search_text(within)}"


def gap_text(gap: float | None) -> str:
    """How far from the best plan at most."""
    return "unknown" if gap is None else percent(gap)
