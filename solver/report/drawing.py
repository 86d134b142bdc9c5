"""What all pictures share: hand-written SVG 1.1."""

import math
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape

#: Colours of lines that lie over each other.
COLOURS = ("#d62728", "#4c86c6", "#3f9a5b", "#b279c9", "#e39a2d", "#7a7a7a")
LETTER = 6.2  # average width of a letter of the 11 px font
_STYLE = (
    "text{font:11px sans-serif;fill:#222}.t{font-size:17px;font-weight:bold}"
    ".g{stroke:#000;stroke-opacity:.15}.c{fill:none;stroke-width:2}"
)


def written(x: float, y: float, words: str, style: str = "") -> str:
    """Words that begin at a place in px; `style`: more attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(words)}</text>'


def grid_line(x: float, y: float, to_x: float, to_y: float) -> str:
    """A thin line."""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="g"/>'


def upright_lines(
    places: Iterable[tuple[float, str]], top: float, bottom: float, below: float = 16
) -> Iterator[str]:
    """Thin lines at places from the left, with words `below` them."""
    for x, words in places:
        yield grid_line(x, top, x, bottom)
        yield written(x, bottom + below, words, ' text-anchor="middle"')


def grid(
    across: Iterable[tuple[float, str]],
    up: Iterable[tuple[float, str]],
    corner: tuple[float, float],
    size: tuple[float, float],
) -> Iterator[str]:
    """Lines at places from the left and from the top, behind a chart with this upper left."""
    left, top = corner
    yield from upright_lines(across, top, top + size[1])
    for y, words in up:
        yield grid_line(left, y, left + size[0], y)
        yield written(left - 8, y + 4, words, ' text-anchor="end"')


def round_part(length: float, most: int) -> float:
    """1, 2 or 5 times a power of ten: what divides a length into at most so many parts."""
    power = 10.0 ** math.floor(math.log10(length / most))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * most >= length)


def key_width(name: str) -> float:
    """Width in px of a name in the key of a picture, with its colour and the space behind."""
    return 44 + LETTER * len(name)


def key(x: float, y: float, name: str, colour: str) -> Iterator[str]:
    """A name in the key, with its colour; y: upper edge."""
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="14" height="10" fill="{colour}"/>'
    yield written(x + 20, y + 9, name)


def picture(
    title: str,
    width: float | str,
    height: float | str,
    parts: Iterable[str],
    style: str = _STYLE,
    of: str = "",
    title_y: float = 28,
) -> str:
    """A whole file: the parts on white, below a title; `of`: its class, for pages with several."""
    named = f' class="{of}"' if of else ""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg"{named} viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        written(16, title_y, title, ' class="t"'),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
