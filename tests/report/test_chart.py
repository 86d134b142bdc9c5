"""Pictures: XML whose text is text, the same twice, and as part of a page in its colours."""

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from solver.report.chart import INK, inline, log_axis, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(low: float, high: float) -> str:
    def line(axes: "Axes") -> None:
        axes.plot([low, high], [1, 2], label="a < b")
        log_axis(axes, "x", low, high)
        axes.legend()

    return picture("two & two", line, line, columns=1)


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(900, 120_000, {"1,000", "2,000", "50,000"}), (35, 65, {"40", "45", "60"})],
)
def test_logarithmic_axes_have_round_numbers(low: float, high: float, ticks: set[str]) -> None:
    drawn = draw(low, high)
    written = texts(drawn)
    assert ticks < set(written)
    assert written.count("a < b") == 2
    assert "two & two" in written
    assert drawn == draw(low, high)


def test_a_part_of_a_page_has_its_colours() -> None:
    part = inline(draw(1, 9), "lines")
    assert part.startswith('<svg role=img aria-label="lines"')
    assert INK not in part
    assert "currentColor" in part
