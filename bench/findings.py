"""Which published findings on large-scale training come out of our cost model and simulator.

    python -m bench findings [--out RECORDS] [--picture FILE]

Every finding is a study (`claims`): plans of instances in bench/findings, as Megatron-LM would
launch them, and what must hold of their steps. What does not come out stays in, with the reason.
Table 1 of Narayanan et al. 2021 needs the reference folder. Records, one per study with all plans,
go to bench/results/findings.jsonl, the picture to bench/results/findings.svg.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from rich.table import Table

from bench import claims_cheng, claims_megatron
from bench.claims import Outcome, Study, outcome
from bench.command import command, wide_console
from bench.records import RESULTS, append, record, reference
from solver.report.chart import COLOURS, grid_line, key_width, keys, picture, written

_WIDTH, _HEIGHT = 560, 150  # of the bars of a panel
_LEFT, _TOP = 56, 52
_ABOVE, _BELOW, _BETWEEN = 62, 30, 40
_COLUMNS = 2
_GAP = 0.25  # of the width of a group
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Bars:
    """One panel: series -> label -> value, at least 0; missing bars have no value."""

    heading: str
    axis: str
    values: Mapping[str, Mapping[str, float]]

    @property
    def labels(self) -> list[str]:
        """Groups of bars, in the order in which they first occur."""
        return list(dict.fromkeys(label for own in self.values.values() for label in own))


def ticks(most: float) -> list[float]:
    """Round values from 0 to the first that is not below `most`, five or fewer steps."""
    power = 10 ** floor(log10(most / 4))
    step = next(power * one for one in _STEPS if power * one * 4.5 >= most)
    return [step * i for i in range(ceil(most / step - 1e-9) + 1)]


def _panel(panel: Bars, left: float, top: float) -> Iterator[str]:
    marks = ticks(max(max(own.values()) for own in panel.values.values()))
    yield written(left, top - 42, panel.heading, ' style="font-weight:bold"')
    yield written(left, top - 27, panel.axis)
    for mark in marks:
        y = top + _HEIGHT * (1 - mark / marks[-1])
        yield grid_line(left, y, left + _WIDTH, y)
        yield written(left - 6, y + 4, f"{mark:g}", ' text-anchor="end"')
    group = _WIDTH / len(panel.labels)
    width = group * (1 - _GAP) / len(panel.values)
    for i, label in enumerate(panel.labels):
        middle = left + group * (i + 0.5)
        yield written(middle, top + _HEIGHT + 14, label, ' text-anchor="middle"')
        for j, (own, colour) in enumerate(zip(panel.values.values(), COLOURS, strict=False)):
            if label in own:
                height = _HEIGHT * own[label] / marks[-1]
                x = middle + width * (j - len(panel.values) / 2)
                yield _bar(x, top + _HEIGHT - height, width, height, colour)
    x = left + _WIDTH - sum(map(key_width, panel.values)) + 24
    yield from keys(x, top - 20, dict(zip(panel.values, COLOURS, strict=False)))[0]


def _bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour}"/>'


def bar_picture(title: str, panels: Sequence[Bars]) -> str:
    """A picture of all panels, two beside each other; at most as many series as colours."""
    wide, high = _LEFT + _WIDTH + _BETWEEN, _ABOVE + _HEIGHT + _BELOW
    parts = [
        part
        for i, panel in enumerate(panels)
        for part in _panel(
            panel, _LEFT + wide * (i % _COLUMNS), _TOP + _ABOVE + high * (i // _COLUMNS)
        )
    ]
    rows = -(-len(panels) // _COLUMNS)
    return picture(title, _COLUMNS * wide, _TOP + rows * high + 16, parts)


Figures = dict[str, Any]


def studies(folder: Path) -> list[Study]:
    """All studies; table 1 only where the reference folder is."""
    found = claims_megatron.studies()
    if folder.is_dir():
        found.append(claims_megatron.rows(folder))
    return found + claims_cheng.studies()


def figures(study: Study) -> Figures:
    """The outcome of a study, with its plans."""
    found = [outcome(point) for point in study.points]
    values = study.figures(found)
    parts = study.judge(values)
    return {
        "study": study.name,
        "claim": study.claim,
        "source": study.source,
        "parts": parts,
        "comes_out": verdict(parts, study.fitted),
        "note": study.note,
        "axis": study.axis,
        "values": values,
        "plans": [_plan(one) for one in found],
    }


def verdict(parts: Mapping[str, bool], fitted: bool) -> str:
    """Whether all parts, some or none come out; said of fitted ones, which show less."""
    if all(parts.values()):
        return "yes, fitted" if fitted else "yes"
    return "partly" if any(parts.values()) else "no"


def _plan(one: Outcome) -> Figures:
    simple = {k: v for k, v in one.point.changes.items() if isinstance(v, int | float | tuple)}
    return {
        "series": one.point.series,
        "label": one.point.label,
        "file": one.point.file,
        "shape": dict(one.point.config),
        "changes": simple,
        "instance_sha256": one.instance_sha256,
        "step_s": one.step_s,
        "memory_bytes": one.memory_bytes,
        "teraflops_per_gpu": one.teraflops,
    }


def panels_picture(found: Sequence[Figures]) -> str:
    """A panel per study."""
    panels = [
        Bars(
            f"{one['study']}, comes out: {one['comes_out']}",
            f"{one['source'].partition(',')[0]}; {one['axis']}",
            one["values"],
        )
        for one in found
    ]
    return bar_picture("Published findings, simulated", panels)


def table(found: Sequence[Figures]) -> Table:
    """One line per study."""
    result = Table("finding", "source", "comes out", "note")
    for one in found:
        parts = [f"{'yes' if holds else 'no'}: {name}" for name, holds in one["parts"].items()]
        result.add_row(
            one["claim"], one["source"], "\n".join([one["comes_out"], *parts]), one["note"]
        )
    return result


def main() -> None:
    """Runs the benchmark."""
    parser = command("findings")
    parser.add_argument("--picture", type=Path, default=RESULTS / "findings.svg")
    chosen = parser.parse_args()
    found = [figures(study) for study in studies(reference())]
    append(chosen.out, [record("findings", one) for one in found])
    chosen.picture.write_text(panels_picture(found), encoding="utf-8")
    console = wide_console()
    console.print(table(found))
