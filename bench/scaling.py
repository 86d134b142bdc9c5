"""Time and gap of the exact search as the cluster grows from 2 to 512 nodes.

    python -m bench scaling [NODES ...] [--time-limit S] [--gap G] [--workers N] [--out RECORDS]

The instances are the files in bench/scaling. Each is solved in a process of its own, until the gap
is reached or the time is up. Records go to bench/results/scaling.jsonl; scaling.svg beside it draws
the latest record of every size, once there are two.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.command import (
    Column,
    all_cores,
    command,
    config_of,
    figure_table,
    search_options,
    wide_console,
)
from bench.records import ROOT, append, cpu_seconds, peak_rss_bytes, record
from bench.searches import Figures, apart, head, outcome_of
from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from solver.report.chart import COLOURS, Axis, Chart, key_width, keys, picture, written
from solver.search.driver import solve
from solver.search.progress import Progress

_WIDTH, _HEIGHT, _SPACE = 700, 220, 48
_LEFT, _TOP = 84, 66

Point = tuple[float, float]


@dataclass(frozen=True)
class Panel:
    """Lines over the common axis, by name; values from `ticks[0]` on, on a logarithmic axis.

    Smaller values are drawn on the lowest tick, so that 0 has a place. `show`: text of a tick.
    """

    axis: str
    ticks: Sequence[float]
    show: Callable[[float], str]
    lines: Mapping[str, Sequence[Point]]


def line_picture(title: str, axis: str, panels: Sequence[Panel]) -> str:
    """A picture of the panels one below the other; equal names have equal colours.

    The common axis has a tick at every x of a point, of which there are two or more different
    ones, all above 0. At most four different names of lines.
    """
    lines = [line for panel in panels for line in panel.lines.values()]
    numbers = sorted({x for line in lines for x, _ in line})
    across = Axis(numbers[0], numbers[-1], [(n, f"{n:g}") for n in numbers], math.log)
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    colours = dict(zip(names, COLOURS, strict=False))
    height = _TOP + len(panels) * (_HEIGHT + _SPACE) + 12
    parts: list[str] = []
    for index, panel in enumerate(panels):
        ticks = [(tick, panel.show(tick)) for tick in panel.ticks]
        up = Axis(panel.ticks[0], panel.ticks[-1], ticks, math.log)
        top = _TOP + index * (_HEIGHT + _SPACE)
        chart = Chart(across, up, _LEFT, top, _WIDTH, _HEIGHT)
        parts += [*chart.grid(), written(16, top - 10, panel.axis)]
        x = _LEFT + _WIDTH - sum(map(key_width, panel.lines))
        parts += keys(x, top - 19, {name: colours[name] for name in panel.lines})[0]
        for name, points in panel.lines.items():
            parts += _line(chart, points, colours[name])
    parts.append(written(_LEFT + _WIDTH / 2, height - 10, axis, ' text-anchor="middle"'))
    return picture(title, _LEFT + _WIDTH + 32, height, parts)


def _line(chart: Chart, points: Sequence[Point], colour: str) -> Iterator[str]:
    """Through all points, with a dot on each."""
    path = "L".join(f"{chart.x(x):.1f} {chart.y(y):.1f}" for x, y in sorted(points))
    yield f'<path class="c" stroke="{colour}" d="M{path}"/>'
    for point in sorted(points):
        yield chart.dot(point, 3.5, f'fill="{colour}"')


INSTANCES = ROOT / "bench" / "scaling"
#: Gaps of which the time is recorded when they are first reached.
MILESTONES = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0)


class Milestones:
    """Seconds after which the gap was first at most each of `MILESTONES`."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.reached_s: dict[str, float] = {}

    def note(self, gap: float | None) -> None:
        """The gap is this now."""
        for milestone in MILESTONES:
            if gap is not None and gap <= milestone:
                now_s = round(time.perf_counter() - self.begin, 3)
                self.reached_s.setdefault(f"{milestone:g}", now_s)

    def __call__(self, progress: Progress) -> None:
        """Notes the gap of a running search."""
        self.note(progress.gap)


def measure(instance: Instance, options: SolveOptions) -> Figures:
    """The exact search on one instance, in this process and those that it starts."""
    start_s, milestones = cpu_seconds(), Milestones()
    result = solve(instance, options, milestones)
    milestones.note(result.gap)
    reasons = [one.reason for one in result.log.configs]
    return outcome_of(result) | {
        "cpu_s": cpu_seconds() - start_s,
        "gap_reached_s": milestones.reached_s,
        "shapes": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
        "peak_rss_bytes": peak_rss_bytes(),
    }


def solved(path: Path, options: SolveOptions) -> Figures:
    """The record of one instance file."""
    instance = load_instance(path)
    nodes = {"nodes": sum(group.nodes for group in instance.cluster.groups)}
    asked = head(path.stem, instance, options) | nodes
    return record("scaling", asked | apart(measure, instance, options))


def latest(records: Iterable[Figures]) -> list[Figures]:
    """The last record of every number of nodes, by that number."""
    by_nodes = {one["nodes"]: one for one in records}
    return [by_nodes[nodes] for nodes in sorted(by_nodes)]


def growth_picture(records: Sequence[Figures]) -> str:
    """Seconds and gap over the number of nodes, of records with a plan."""
    with_gap = [one for one in records if one["gap"] is not None]
    seconds = {
        "wall time": [(one["nodes"], one["runtime_s"]) for one in with_gap],
        "CPU time": [(one["nodes"], one["cpu_s"]) for one in with_gap],
    }
    gap = {"gap": [(one["nodes"], 100 * one["gap"]) for one in with_gap]}
    return line_picture(
        "Exact search: time and gap as the cluster grows",
        "nodes of 8 GPUs, three types",
        [
            Panel("seconds", (0.1, 1, 10, 100, 1000), lambda tick: f"{tick:g} s", seconds),
            Panel(
                "gap",
                (0.01, 0.1, 0.5, 1, 10, 100),
                lambda tick: f"{tick:g} %",
                gap,
            ),
        ],
    )


TABLE: dict[str, Column] = {
    "nodes": ("nodes", 1, 0),
    "status": "status",
    "configuration tp x dp x pp, b": config_of,
    "step s": ("step_time_ns", 1e-9, 3),
    "gap %": ("gap", 100, 3),
    "seconds": ("runtime_s", 1, 2),
    "CPU s": ("cpu_s", 1, 2),
    "peak MiB": ("peak_rss_bytes", 1 / 2**20, 0),
}


def main() -> None:
    """Runs the benchmark; records are stored after every instance, the picture at the end."""
    parser = command("scaling", time_limit=300.0, gap=0.001, seed=0, workers=all_cores())
    parser.add_argument("nodes", nargs="*", type=int, help="sizes; default: all")
    chosen = parser.parse_args()
    options = search_options(chosen)
    files = {int(path.stem.rpartition("_")[2]): path for path in INSTANCES.glob("*.yaml")}
    console = wide_console()
    for nodes in chosen.nodes or sorted(files):
        console.print(f"{nodes} nodes ...")
        append(chosen.out, [solved(files[nodes], options)])
    lines = chosen.out.read_text(encoding="utf-8").splitlines()
    records = latest(json.loads(line) for line in lines)
    console.print(figure_table(records, TABLE))
    if len(records) > 1:
        chosen.out.with_suffix(".svg").write_text(growth_picture(records), encoding="utf-8")
