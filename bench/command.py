"""What the command lines of the benchmarks share: options, and tables on the terminal."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.records import RESULTS
from solver.options import SolveOptions

#: Options of several benchmarks, each with its own default.
_USUAL: dict[str, dict[str, Any]] = {
    "time_limit": {"type": float, "help": "seconds per search"},
    "gap": {"type": float, "help": "relative gap to stop at"},
    "seed": {"type": int},
    "workers": {"type": int},
    "repeats": {"type": int, "help": "runs of each"},
}


def command(name: str, **usual: float | None) -> ArgumentParser:
    """The parser of a benchmark, with where records go and those usual options that it has."""
    parser = ArgumentParser(prog=f"python -m bench {name}")
    for option, default in usual.items():
        words = f"--{option.replace('_', '-')}"
        parser.add_argument(words, default=default, **_USUAL[option])
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.jsonl", help="of records")
    return parser


def all_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def search_options(chosen: Namespace) -> SolveOptions:
    """Those of a command line, for the exact search."""
    known = vars(chosen)
    found = {name: known[name] for name in ("gap", "seed", "workers") if name in known}
    return SolveOptions(time_limit_s=known["time_limit"], **found)


def new_table(texts: Iterable[str], numbers: Iterable[str], more: Iterable[str] = ()) -> Table:
    """A table of columns of text, then of numbers, then of text again."""
    found = Table(*texts)
    for name in numbers:
        found.add_column(name, justify="right")
    for name in more:
        found.add_column(name)
    return found


def wide_console(width: int = 120) -> Console:
    """One at least so wide."""
    console = Console()
    console.width = max(console.width, width)
    return console
