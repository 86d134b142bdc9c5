"""Charts with axes as hand-written SVG 1.1: axes, marks, keys, and the file around them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

#: Colours of lines that lie over each other.
COLOURS = ("#d62728", "#4c86c6", "#3f9a5b", "#b279c9", "#e39a2d", "#7a7a7a")
LETTER = 6.2  # average width of a letter of the 11 px font
_STYLE = (
    "text{font:11px sans-serif;fill:#222}.t{font-size:17px;font-weight:bold}"
    ".g{stroke:#000;stroke-opacity:.15}.c{fill:none;stroke-width:2}"
)
_MIDDLE = ' text-anchor="middle"'

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` in px; those beyond stand at its end.

    ticks: values with their texts. scale: grows with the value, as `math.log` does; an axis keeps
    its differences.
    """

    low: float
    high: float
    ticks: Sequence[tuple[float, str]] = ()
    scale: Callable[[float], float] = float

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        low, at, high = map(self.scale, (self.low, min(max(value, self.low), self.high), self.high))
        return (at - low) / (high - low)


@dataclass(frozen=True)
class Chart:
    """A rectangle with two axes; places are in px from the upper left of the picture."""

    across: Axis
    up: Axis
    left: float
    top: float
    width: float
    height: float

    def x(self, value: float) -> float:
        """From left to right."""
        return self.left + self.width * self.across.share(value)

    def y(self, value: float) -> float:
        """From the bottom to the top."""
        return self.top + self.height * (1 - self.up.share(value))

    def grid(self) -> Iterator[str]:
        """A thin line at every tick, with its text below or left of it."""
        bottom = self.top + self.height
        for value, text in self.across.ticks:
            x = self.x(value)
            yield grid_line(x, self.top, x, bottom)
            yield written(x, bottom + 16, text, _MIDDLE)
        for value, text in self.up.ticks:
            y = self.y(value)
            yield grid_line(self.left, y, self.left + self.width, y)
            yield written(self.left - 8, y + 4, text, ' text-anchor="end"')

    def names(self, across: str, up: str) -> Iterator[str]:
        """What the axes are of, below the chart and above it; "": nothing is said."""
        middle, bottom = self.left + self.width / 2, self.top + self.height
        yield written(middle, bottom + 38, across, _MIDDLE)
        if up:
            yield written(self.left, self.top - 10, up)

    def steps(self, points: Sequence[Point], end: float, style: str) -> str:
        """A line that keeps the height of a point up to the next one; style: attributes."""
        (first_x, first_y), *others = points
        path = f"M{self.x(first_x):.1f} {self.y(first_y):.1f}"
        path += "".join(f"H{self.x(x):.1f}V{self.y(y):.1f}" for x, y in others)
        return f'<path {style} d="{path}H{self.x(end):.1f}"/>'

    def dot(self, point: Point, radius: float, style: str, text: str = "") -> str:
        """A circle; text: its tooltip."""
        place = f'cx="{self.x(point[0]):.1f}" cy="{self.y(point[1]):.1f}" r="{radius:g}"'
        tooltip = f"<title>{escape(text)}</title>" if text else ""
        return f"<circle {place} {style}>{tooltip}</circle>"


def written(x: float, y: float, words: str, style: str = "") -> str:
    """Words that begin at a place in px; `style`: more attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(words)}</text>'


def grid_line(x: float, y: float, to_x: float, to_y: float) -> str:
    """A thin line."""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="g"/>'


def round_ticks(largest: float) -> list[float]:
    """Five to ten round numbers from 0 to the first that is at least `largest`.

    They are 1, 2 or 5 times a power of ten apart.
    """
    power = 10.0 ** math.floor(math.log10(largest / 10))
    distance = next(power * n for n in (1, 2, 5, 10) if power * n * 10 >= largest)
    return [distance * i for i in range(int(largest / distance - 1e-9) + 2)]


def key_width(name: str) -> float:
    """Width in px of a name in the key of a picture, with its colour and the space behind."""
    return 44 + LETTER * len(name)


def key(x: float, y: float, name: str, colour: str) -> Iterator[str]:
    """A name in the key, with its colour; y: upper edge."""
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="14" height="10" fill="{colour}"/>'
    yield written(x + 20, y + 9, name)


def keys(x: float, y: float, colours: Mapping[str, str]) -> tuple[list[str], float]:
    """Names with their colours, one behind another, and where they end; x, y: where they begin."""
    parts: list[str] = []
    for name, colour in colours.items():
        parts += key(x, y, name, colour)
        x += key_width(name)
    return parts, x


def picture(
    title: str,
    width: float | str,
    height: float | str,
    parts: Iterable[str],
    style: str = "",
    of: str = "",
) -> str:
    """A whole file: the parts on white, below a title; `style`: more rules.

    of: its class, to which rules are confined, for pages with several pictures.
    """
    named, scope = (f' class="{of}"', f".{of} ") if of else ("", "")
    rules = "".join(f"{scope}{rule}}}" for rule in (_STYLE + style).split("}")[:-1])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg"{named} viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<title>{escape(title)}</title>",
        f"<style>{rules}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        written(16, 28, title, ' class="t"'),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
