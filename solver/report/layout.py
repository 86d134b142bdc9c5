"""The two forms that reports take on a terminal: tables and labelled lines."""

from collections.abc import Iterable, Sequence
from typing import IO

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

Lines = list[tuple[str, str]]
_LABEL_WIDTH = 12
WIDTH = 100  # columns where no terminal says otherwise


def draw(parts: Sequence[RenderableType], page: IO[str], *, terminal: bool = False) -> None:
    """Writes the parts of a report, 100 columns wide and without colours if that is no terminal."""
    console = Console(
        file=page,
        force_terminal=terminal,
        width=None if terminal else WIDTH,
        highlight=False,
        emoji=False,
    )
    for part in parts:
        console.print(part, markup=False, soft_wrap=isinstance(part, str))


def table(texts: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table without frame: columns of text first, then columns of numbers."""
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in texts:
        grid.add_column(heading, overflow="fold")
    for heading in numbers:
        grid.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def labelled(lines: Lines) -> Table:
    """Lines with a label before each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True, min_width=_LABEL_WIDTH)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(label, Text(text))
    return grid
