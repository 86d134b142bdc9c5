"""The two forms that reports take, on a terminal and as HTML: tables and labelled lines."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from textwrap import wrap
from typing import IO, Literal, TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

R = TypeVar("R")
Parts = Iterable[RenderableType]  #: of a report, with an empty line between two
Lines = Iterable[tuple[str, str]]  #: of a report, each with its label
#: Headings of columns, each with the text of its cell in a row; False: a table lacks the column.
Columns = Mapping[str, Callable[[R], str] | Literal[False]]
_LABEL_WIDTH = 12
WIDTH = 100  # columns where no terminal says otherwise
_GAP = 2  # columns between two of a table
_UNFOLDED = 12  # rows of a table that a page shows at once
_FOLDED = 8  # characters that a broken word keeps on a line
#: Between a number and its unit, or a name and its number.
_TOGETHER = re.compile(r"(?<=\d) (?=(?:[num]?s|[KMGT]?i?B|USD|[GTP]?FLOP)\b|%)|(?<=ZeRO) (?=\d)")


def draw(parts: Parts, page: IO[str], *, terminal: bool = False) -> None:
    """Writes the parts of a report, 100 columns wide and without colours if that is no terminal."""
    width = None if terminal else WIDTH
    console = Console(file=page, force_terminal=terminal, width=width, highlight=False, emoji=False)
    for i, part in enumerate(parts):
        if i:
            console.print()
        console.print(part, markup=False)


@dataclass(frozen=True)
class Grid:
    """A table without frame: columns of text first, then columns of numbers.

    On a narrow page first headings are broken between words, then cells of text, then words of
    text, at last words of headings; numbers never.
    """

    texts: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
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
        # By column: its width, then how narrow it may become, in the order of the class's text
        minima: list[tuple[int, ...]] = []
        for heading, *cells in zip((*self.texts, *self.numbers), *self.rows, strict=True):
            longest = max(map(len, cells), default=0)
            cell, word = max(_longest_word([heading]), longest), _longest_word([heading, *cells])
            folded = min(word, _FOLDED)
            is_text = len(minima) < len(self.texts)
            narrower = (word, folded, folded) if is_text else (cell, cell, longest)
            minima.append((max(len(heading), longest), cell, *narrower))
        widths, *steps = map(list, zip(*minima, strict=True))
        for narrow in steps:
            while sum(widths) + _GAP * (len(widths) - 1) > page:
                wide = [n for n, width in enumerate(widths) if width > narrow[n]]
                if not wide:
                    break
                widths[max(wide, key=widths.__getitem__)] -= 1
        return widths

    def html(self, caption: str) -> str:
        """The table of a page, folded where it is long; caption: what it shows."""
        styles = [""] * len(self.texts) + [" class=number"] * len(self.numbers)
        head = "".join(
            f"<th scope=col{style}>{escape(name)}</th>" if name else "<td></td>"
            for style, name in zip(styles, (*self.texts, *self.numbers), strict=True)
        )
        rows = (
            "".join(f"<td{style}>{escape(c)}</td>" for style, c in zip(styles, row, strict=True))
            for row in self.rows
        )
        body, told = "".join(f"<tr>{row}</tr>" for row in rows), escape(caption)
        table = (
            f'<div class=scroll role=region aria-label="{told}"><table><caption>{told}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )
        folded = f"<details><summary>{told}: {len(self.rows):,} rows</summary>{table}</details>"
        return table if len(self.rows) <= _UNFOLDED else folded


def _longest_word(texts: Iterable[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def table_of(rows: Iterable[R], texts: Columns[R], numbers: Columns[R]) -> Grid:
    """A line for every row: what stands in it in each column of text, then of numbers."""
    text_cells = {heading: cell for heading, cell in texts.items() if cell}
    number_cells = {heading: cell for heading, cell in numbers.items() if cell}
    cells = (*text_cells.values(), *number_cells.values())
    return Grid([*text_cells], [*number_cells], [[cell(row) for cell in cells] for row in rows])


class Labelled:
    """Lines with a label before each; between words, but for a number and its unit, they break."""

    def __init__(self, *groups: Lines) -> None:
        self.lines = [*chain(*groups)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        label_width = max([_LABEL_WIDTH, *(len(label) for label, _ in self.lines)])
        width = max(_FOLDED, options.max_width - label_width - _GAP)
        grid = Table.grid(padding=(0, _GAP))
        grid.add_column(style="bold", no_wrap=True, width=label_width)
        grid.add_column(overflow="fold")
        for label, text in self.lines:
            grid.add_row(label, Text("\n".join(_wrapped(text, width))))
        yield grid

    def html(self) -> str:
        """The lines as a table of a page; those without a label go on with the one above."""
        rows = list[str]()
        for label, text in self.lines:
            if label:
                rows.append(f"<th scope=row>{escape(label)}</th><td>{escape(text)}</td>")
            else:
                rows[-1] = f"{rows[-1].removesuffix('</td>')}<br>{escape(text)}</td>"
        return f"<table class=lines>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _wrapped(text: str, width: int) -> list[str]:
    kept = _TOGETHER.sub("\N{NO-BREAK SPACE}", text)
    lines = wrap(kept, width, break_on_hyphens=False, replace_whitespace=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
