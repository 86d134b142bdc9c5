"""The two forms that reports take on a terminal: tables and labelled lines."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import IO

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

Lines = list[tuple[str, str]]
_LABEL_WIDTH = 12
WIDTH = 100  # columns where no terminal says otherwise
_GAP = 2  # columns between two of a table
_FOLDED = 8  # characters that a broken word keeps on a line
#: Between a number and its unit, or a name and its number.
_TOGETHER = re.compile(r"(?<=\d) (?=(?:[num]?s|[KMGT]?i?B|USD|[GTP]?FLOP)\b|%)|(?<=ZeRO) (?=\d)")


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
        console.print(part, markup=False)


@dataclass(frozen=True)
class Grid:
    """A table without frame: columns of text first, then columns of numbers.

    On a narrow page first headings are broken between words, then cells of text, then words of
    text, at last words of headings; numbers never.
    """

    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table in the columns that there are."""
        grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        widths = iter(self.widths(options.max_width))
        for heading in self.texts:
            grid.add_column(heading, width=next(widths), overflow="fold")
        for heading in self.numbers:
            grid.add_column(heading, width=next(widths), justify="right", overflow="fold")
        for row in self.rows:
            grid.add_row(*(Text(cell) for cell in row))
        yield grid

    def widths(self, page: int) -> list[int]:
        """Characters of every column, on a page of so many."""
        headings, first = self.texts + self.numbers, len(self.texts)
        columns = list(zip(*self.rows, strict=True)) or [()] * len(headings)
        headed = [(one, *column) for one, column in zip(headings, columns, strict=True)]
        widths = [max(map(len, column)) for column in headed]
        cells = [max(_longest_word(one[:1]), *map(len, one[1:]), 0) for one in headed]
        words = [_longest_word(column) for column in headed[:first]]
        folded, numbers = [min(word, _FOLDED) for word in words], cells[first:]
        figures = [max(map(len, column), default=0) for column in columns[first:]]
        for least in (cells, words + numbers, folded + numbers, folded + figures):
            _narrow(widths, least, page - _GAP * (len(widths) - 1))
        return widths


def _longest_word(texts: Iterable[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def _narrow(widths: list[int], least: Sequence[int], room: int) -> None:
    """Takes from the widest column that is wider than it must be until all have room."""
    while sum(widths) > room:
        wide = [n for n, width in enumerate(widths) if width > least[n]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def table(texts: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]]) -> Grid:
    """A table with these headings of columns of text, then of numbers."""
    return Grid(tuple(texts), tuple(numbers), tuple(map(tuple, rows)))


@dataclass(frozen=True)
class Labelled:
    """Lines with a label before each; between words, but for a number and its unit, they break."""

    lines: tuple[tuple[str, str], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines in the columns that there are."""
        label_width = max([_LABEL_WIDTH, *(len(label) for label, _ in self.lines)])
        width = max(_FOLDED, options.max_width - label_width - _GAP)
        grid = Table.grid(padding=(0, _GAP))
        grid.add_column(style="bold", no_wrap=True, width=label_width)
        grid.add_column(overflow="fold")
        for label, text in self.lines:
            grid.add_row(label, Text("\n".join(_wrapped(text, width))))
        yield grid


def _wrapped(text: str, width: int) -> list[str]:
    kept = _TOGETHER.sub("\N{NO-BREAK SPACE}", text)
    lines = wrap(kept, width, break_on_hyphens=False, replace_whitespace=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def labelled(lines: Lines) -> Labelled:
    """Lines with a label before each."""
    return Labelled(tuple(lines))
