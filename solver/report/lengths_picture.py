"""One step of mixed lengths as a hand-written SVG 1.1 picture.

A bar of what runs in time, switches between, and what takes the end of each group and of the step;
below it the best single strategy on the same scale, and a line for each group. All bars have
tooltips.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from solver.lengths_document import LengthsDocument, SingleDocument
from solver.report.chart import LETTER, picture, round_part, upright_lines, written
from solver.report.lengths_step import anchor_s, buckets_text, strategy_name, visit_s
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


@dataclass(frozen=True)
class _Bar:
    """A part of the step; number: of its group's rows, None for any other part."""

    begin_s: float
    time_s: float
    number: int | None
    fill: str
    text: str


def lengths_picture(document: LengthsDocument) -> str:
    """The picture."""
    single = document.single
    longest_s = max(document.step_time_s, 0.0 if single is None else single.step_time_s) or 1.0
    bars, alone = list(_bars(document)), list(_single_bars(document, single))
    rows = _TOP + _BAR + (0 if single is None else _BAR + 14)
    height = rows + 44 + _LINE * (len(document.groups) + len(_OTHERS))
    title = f"{document.workload}: a step of {time_text(document.step_time_s)}"
    parts = [
        *_axis(longest_s, rows),
        written(16, _TOP + _BAR / 2 + 4, "this step"),
        *(_rect(bar, _TOP, longest_s) for bar in bars),
    ]
    if single is not None:
        top, name = _TOP + _BAR + 14, strategy_name(document, single.strategy)
        text = f"{name}, alone: {time_text(single.step_time_s)}"
        parts.append(written(16, top + _BAR / 2 + 4, "best single"))
        parts += [_rect(bar, top, longest_s) for bar in alone]
        parts.append(written(_LEFT + 8, top + _BAR / 2 + 4, text, ' style="fill:#fff"'))
    parts += _legend(bars, alone, rows + 44)
    return picture(title, _LEFT + _WIDTH + _RIGHT, height, parts, _STYLE, "lengths")


def _bars(document: LengthsDocument) -> Iterator[_Bar]:
    """Groups and switches in the order of the step."""
    now_s, before, switches = 0.0, document.anchor, list(document.switches)
    for number, group in enumerate(document.groups):
        if group.strategy != before:
            one = switches.pop(0)
            yield _switch(document, now_s, one.time_s, one.moves, one.enters)
            now_s += one.time_s
        yield from _run(
            document, group.strategy, now_s, group.time_s, number, f"{buckets_text(group)} tokens"
        )
        now_s, before = now_s + group.time_s, group.strategy
    for one in switches:
        yield _switch(document, now_s, one.time_s, one.moves, one.enters)
        now_s += one.time_s
    yield from _optimizer(document, document.anchor, now_s)


def _single_bars(document: LengthsDocument, single: SingleDocument | None) -> Iterator[_Bar]:
    """The best single strategy: one visit, and the optimizer; nothing where there is none."""
    if single is None:
        return
    visited_s = single.step_time_s - anchor_s(document, single.strategy)
    yield from _run(document, single.strategy, 0.0, visited_s, None, "all sequences")
    yield from _optimizer(document, single.strategy, visited_s)


def _run(
    document: LengthsDocument,
    strategy: int,
    begin_s: float,
    time_s: float,
    number: int | None,
    what: str,
) -> Iterator[_Bar]:
    """Rows of a strategy, and the reduction of gradients behind them."""
    name, reduced_s = strategy_name(document, strategy), visit_s(document, strategy)
    rows_s = time_s - reduced_s
    text = f"{name}: {what}, {time_text(rows_s)}"
    yield _Bar(begin_s, rows_s, number, _fill(document, strategy), text)
    if reduced_s:
        text = f"gradients reduced by {name}, {time_text(reduced_s)}"
        yield _Bar(begin_s + rows_s, reduced_s, None, _VISIT, text)


def _optimizer(document: LengthsDocument, anchor: int, begin_s: float) -> Iterator[_Bar]:
    """The end of a step."""
    if once_s := anchor_s(document, anchor):
        text = f"optimizer of {strategy_name(document, anchor)}, {time_text(once_s)}"
        yield _Bar(begin_s, once_s, None, _ANCHOR, text)


def _switch(
    document: LengthsDocument, begin_s: float, time_s: float, moves: str, enters: int
) -> _Bar:
    what = "parameters and gradients" if moves == "both" else moves
    name = strategy_name(document, enters)
    text = f"switch of {what} to {name}, {time_text(time_s)}"
    return _Bar(begin_s, time_s, None, _SWITCH, text)


def _fill(document: LengthsDocument, strategy: int) -> str:
    """A colour for each strategy of the step, in the order in which they come; another one."""
    used = list(dict.fromkeys(group.strategy for group in document.groups))
    place = used.index(strategy) if strategy in used else len(used)
    return _FILLS[place % len(_FILLS)]


def _rect(bar: _Bar, top: float, longest_s: float) -> str:
    drawn = _drawn(bar.begin_s, bar.time_s, top, longest_s, bar.fill, bar.text)
    width = _WIDTH * bar.time_s / longest_s
    if bar.number is None or width < 3 * LETTER:
        return drawn
    middle = _LEFT + _WIDTH * (bar.begin_s + bar.time_s / 2) / longest_s
    return drawn + written(middle, top + _BAR / 2 + 4, str(bar.number + 1), ' class="n"')


def _drawn(
    begin_s: float, time_s: float, top: float, longest_s: float, fill: str, text: str
) -> str:
    x, width = _LEFT + _WIDTH * begin_s / longest_s, _WIDTH * time_s / longest_s
    return (
        f'<rect x="{x:.2f}" y="{top:.0f}" width="{width:.2f}" height="{_BAR}" fill="{fill}">'
        f"<title>{escape(text)}</title></rect>"
    )


def _axis(longest_s: float, bottom: float) -> Iterator[str]:
    """Round ticks of time."""
    step = round_part(longest_s, 8)
    times = [n * step for n in range(int(longest_s / step) + 1)]
    places = (
        (_LEFT + _WIDTH * time_s / longest_s, round_time_text(round(time_s, 12), longest_s))
        for time_s in times
    )
    yield from upright_lines(places, _TOP - 8, bottom + 6, 14)


def _legend(bars: list[_Bar], alone: list[_Bar], top: float) -> Iterator[str]:
    """A line for each group, and one for each kind of what is between, with its times in both."""
    lines = [(bar.fill, f"{bar.number + 1}. {bar.text}") for bar in bars if bar.number is not None]
    for fill, name in _OTHERS.items():
        step_s, alone_s = (
            sum(one.time_s for one in row if one.fill == fill) for row in (bars, alone)
        )
        if step_s or alone_s:
            single = f"; best single: {time_text(alone_s)}" if alone_s else ""
            lines.append((fill, f"{name}: {time_text(step_s)}{single}"))
    for n, (fill, text) in enumerate(lines):
        yield _line(top + n * _LINE, fill, text)


def _line(y: float, fill: str, text: str) -> str:
    square = f'<rect x="16" y="{y:.0f}" width="12" height="12" fill="{fill}"/>'
    return square + written(36, y + 10, text)
