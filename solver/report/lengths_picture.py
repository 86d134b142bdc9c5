"""One step of mixed lengths as a hand-written SVG 1.1 picture.

A bar of what runs in time, switches between, and what takes the end of each group and of the step;
below it the best single strategy on the same scale, and a line for each group. All bars have
tooltips.
"""

from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

from formulations.lengths.tour import Hop
from formulations.units import seconds
from solver.lengths_document import LengthsDocument
from solver.report.chart import LETTER, picture, round_part, upright_lines, written
from solver.report.quantities import round_time_text, time_text

_WIDTH, _LEFT, _RIGHT, _BAR = 900, 110, 60, 46
_TOP, _LINE = 64, 22
_FILLS = (
    "#4c86c6",
    "#3f9a5b",
    "#e39a2d",
    "#b279c9",
    "#b5567f",
    "#8c6d5a",
    "#5fb3b3",
    "#a3a832",
)
_SWITCH, _VISIT, _ANCHOR = "#d62728", "#555", "#111"
_OTHERS = {_SWITCH: "switches", _VISIT: "reduction of gradients", _ANCHOR: "optimizer"}
_STYLE = (
    ".lengths text{font:11px sans-serif;fill:#222}.lengths .t{font-size:17px;font-weight:bold}"
    ".lengths .n{fill:#fff;text-anchor:middle}.lengths .g{stroke:#000;stroke-opacity:.15}"
)


class _Bar(NamedTuple):
    """A part of the step; number: of its group's rows, from 1, None for any other part."""

    time_s: float
    fill: str
    text: str
    number: int | None = None


def lengths_picture(document: LengthsDocument) -> str:
    """The picture."""
    step, single = list(_step_bars(document)), document.single
    alone, longest_s = list[_Bar](), document.step_time_s
    if single is not None:
        strategy = document.problem.strategies[single.strategy]
        rows_s = seconds(single.step_ns - strategy.anchor_ns)
        alone = [*_run(document, single.strategy, rows_s, "all sequences")]
        alone += _optimizer(document, single.strategy)
        longest_s = max(longest_s, seconds(single.step_ns))
    scale = _WIDTH / (longest_s or 1.0)
    bottom = _TOP + _BAR + (0 if single is None else _BAR + 14)
    # Round ticks of time
    tick_s = round_part(longest_s or 1.0, 8)
    ticks = [n * tick_s for n in range(int((longest_s or 1.0) / tick_s) + 1)]
    places = (
        (_LEFT + scale * time_s, round_time_text(round(time_s, 12), longest_s or 1.0))
        for time_s in ticks
    )
    parts = [
        *upright_lines(places, _TOP - 8, bottom + 6, 14),
        written(16, _TOP + _BAR / 2 + 4, "this step"),
        *_row(step, _TOP, scale),
    ]
    if single is not None:
        y = _TOP + _BAR + 14 + _BAR / 2 + 4
        name = document.problem.strategies[single.strategy].name
        text = f"{name}, alone: {time_text(seconds(single.step_ns))}"
        parts.append(written(16, y, "best single"))
        parts += _row(alone, _TOP + _BAR + 14, scale)
        parts.append(written(_LEFT + 8, y, text, ' style="fill:#fff"'))
    parts += _legend(step, alone, bottom + 44)
    height = bottom + 44 + _LINE * (len(document.groups) + len(_OTHERS))
    title = f"{document.workload}: a step of {time_text(document.step_time_s)}"
    return picture(title, _LEFT + _WIDTH + _RIGHT, height, parts, _STYLE, "lengths")


def _step_bars(document: LengthsDocument) -> Iterator[_Bar]:
    """Groups and switches in the order of the step."""
    before, switches = document.anchor, list(document.switches)
    for number, group in enumerate(document.groups, 1):
        if group.strategy != before:
            yield _switch(document, switches.pop(0))
        ranges = ", ".join(f"{above + 1:,}-{up_to:,}" for above, up_to in group.buckets)
        time_s = seconds(group.time_ns)
        yield from _run(document, group.strategy, time_s, f"{ranges} tokens", number)
        before = group.strategy
    yield from (_switch(document, hop) for hop in switches)
    yield from _optimizer(document, document.anchor)


def _run(
    document: LengthsDocument, number: int, time_s: float, what: str, group: int | None = None
) -> Iterator[_Bar]:
    """Rows of a strategy, and the reduction of gradients behind them."""
    strategy = document.problem.strategies[number]
    reduced_s = seconds(strategy.visit_ns)
    rows_s = time_s - reduced_s
    # A colour for each strategy of the step, in the order in which they come; another one
    used = list(dict.fromkeys(group.strategy for group in document.groups))
    place = used.index(number) if number in used else len(used)
    text = f"{strategy.name}: {what}, {time_text(rows_s)}"
    yield _Bar(rows_s, _FILLS[place % len(_FILLS)], text, group)
    if reduced_s:
        text = f"gradients reduced by {strategy.name}, {time_text(reduced_s)}"
        yield _Bar(reduced_s, _VISIT, text)


def _optimizer(document: LengthsDocument, anchor: int) -> Iterator[_Bar]:
    """The end of a step."""
    strategy = document.problem.strategies[anchor]
    if once_s := seconds(strategy.anchor_ns):
        yield _Bar(once_s, _ANCHOR, f"optimizer of {strategy.name}, {time_text(once_s)}")


def _switch(document: LengthsDocument, hop: Hop) -> _Bar:
    what = "parameters and gradients" if hop.moves == "both" else hop.moves
    name, time_s = document.problem.strategies[hop.enters].name, seconds(hop.time_ns or 0)
    return _Bar(time_s, _SWITCH, f"switch of {what} to {name}, {time_text(time_s)}")


def _row(bars: list[_Bar], top: float, scale: float) -> Iterator[str]:
    """Bars one behind another; those of groups with their numbers where they have room."""
    x: float = _LEFT
    for bar in bars:
        width = scale * bar.time_s
        drawn = (
            f'<rect x="{x:.2f}" y="{top:.0f}" width="{width:.2f}" height="{_BAR}"'
            f' fill="{bar.fill}"><title>{escape(bar.text)}</title></rect>'
        )
        if bar.number is not None and width >= 3 * LETTER:
            drawn += written(x + width / 2, top + _BAR / 2 + 4, str(bar.number), ' class="n"')
        yield drawn
        x += width


def _legend(step: list[_Bar], alone: list[_Bar], top: float) -> Iterator[str]:
    """A line for each group, and one for each kind of what is between, with its times in both."""
    lines = [(bar.fill, f"{bar.number}. {bar.text}") for bar in step if bar.number is not None]
    for fill, name in _OTHERS.items():
        step_s, alone_s = (
            sum(bar.time_s for bar in row if bar.fill == fill) for row in (step, alone)
        )
        if step_s or alone_s:
            single = f"; best single: {time_text(alone_s)}" if alone_s else ""
            lines.append((fill, f"{name}: {time_text(step_s)}{single}"))
    for n, (fill, text) in enumerate(lines):
        y = top + n * _LINE
        square = f'<rect x="16" y="{y:.0f}" width="12" height="12" fill="{fill}"/>'
        yield square + written(36, y + 10, text)
