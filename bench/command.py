"""What the command lines of the benchmarks share: options, and tables on the terminal."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.records import RESULTS, config_text
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


#: A field as it is; a number, that of a field or one worked out, times a factor, with so many
#: digits; or words.
Column = str | tuple[str | Callable[[Any], float | None], float, int] | Callable[[Any], str]


def figure_table(records: Iterable[Any], columns: Mapping[str, Column]) -> Table:
    """A line per record, with columns by heading; numbers that a record lacks are empty."""
    found = Table()
    for heading, column in columns.items():
        found.add_column(heading, justify="right" if isinstance(column, tuple) else "left")

    def cell(one: Any, column: Column) -> str:
        if not isinstance(column, tuple):
            return str(one[column]) if isinstance(column, str) else column(one)
        figure, factor, digits = column
        value = one.get(figure) if isinstance(figure, str) else figure(one)
        return "" if value is None else f"{factor * value:,.{digits}f}"

    for one in records:
        found.add_row(*(cell(one, column) for column in columns.values()))
    return found


def config_of(one: Any) -> str:
    """The configuration of a record, see `config_text`."""
    return config_text(one.get("shape"))


def num_open(one: Any) -> float:
    """Configurations of a record that a search left open."""
    return float(one.get("shapes", {}).get("open", 0))


def wide_console(width: int = 120) -> Console:
    """One at least so wide."""
    console = Console()
    console.width = max(console.width, width)
    return console
