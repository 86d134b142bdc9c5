"""Tables and Labelled lines fit a page of any width, and a page of HTML."""

from collections.abc import Sequence

import pytest
from rich.console import Console, RenderableType

from solver.report.layout import Grid, Labelled
from solver.report.stages import memory_table, stage_table, traffic_table
from tests.hand_made import document_of, results
from tests.report.shown import check_stored
from tests.seeds import few_and_many


def drawn(part: RenderableType, columns: int) -> list[str]:
    console = Console(width=columns, color_system=None)
    with console.capture() as captured:
        console.print(part, markup=False)
    return captured.get().splitlines()


@pytest.mark.parametrize("seeds", few_and_many(range(12), 12))
def test_tables_fit_a_terminal_of_eighty_columns(seeds: Sequence[int]) -> None:
    """Headings and cells are broken between words alone, numbers never, for plans of many forms."""
    for result in results(seeds):
        document = document_of(result)
        for grid in (stage_table(document), memory_table(document), traffic_table(document)):
            lines = drawn(grid, 80)
            assert max(map(len, lines)) <= 80
            words = {word for row in grid.rows for cell in row for word in cell.split()}
            assert words <= {word for line in lines for word in line.split()}


@pytest.mark.parametrize(
    ("page", "widths"),
    [
        (40, [12, 14, 6]),  # all in one line: 12 + 14 + 6 and two gaps of two
        (33, [12, 11, 6]),  # 3 less for the heading, whose longest word has 7 letters
        (28, [11, 7, 6]),  # that word alone, and 1 less for the cell of texts
        (25, [8, 7, 6]),  # 4 less for it; its longest word has 5 letters
        (10, [5, 7, 6]),  # no narrower
    ],
)
def test_what_gives_way_on_narrow_pages(page: int, widths: list[int]) -> None:
    """Headings between words, then cells of text, then their words; a number keeps its digits."""
    grid = Grid(["from", "a long heading"], ["size"], [["some texts x", "words", "1234 B"]])
    assert grid.widths(page) == widths


def test_lines_keep_numbers_with_their_units() -> None:
    lines = drawn(Labelled([("GPUs", "none, ZeRO 1, 12.5 % and 4 GiB")]), 22)
    assert [line[14:].rstrip() for line in lines] == ["none,", "ZeRO 1,", "12.5 %", "and", "4 GiB"]


test_tables_of_pages_and_terminals_are_as_stored = check_stored("front_page", "interleaved")
