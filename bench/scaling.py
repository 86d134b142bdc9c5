"""Time and gap of the exact search as the cluster grows from 2 to 512 nodes.

    python -m bench scaling [NODES ...] [--time-limit S] [--gap G] [--workers N] [--out RECORDS]

The instances are the files in bench/scaling. Each is solved in a process of its own, until the gap
is reached or the time is up. Records go to bench/results/scaling.jsonl; scaling.svg beside it draws
the latest record of every size, once there are two.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from bench.command import (
    Column,
    all_cores,
    command,
    config_of,
    figure_table,
    search_options,
    wide_console,
)
from bench.records import ROOT, append, cpu_seconds, peak_rss_bytes, record, stored
from bench.searches import Figures, apart, head, outcome_of
from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from solver.report.chart import Draw, log_axis, picture
from solver.search.driver import solve
from solver.search.plan_search import Progress

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
    rows = [row for row in records if row["gap"] is not None]
    nodes = [row["nodes"] for row in rows]

    def panel(unit: str, low: float, lines: Mapping[str, Sequence[float]]) -> Draw:
        def draw(axes: Axes) -> None:
            for name, values in lines.items():  # 0 has a place, too
                axes.plot(nodes, [max(value, low) for value in values], "o-", label=name)
            log_axis(axes, "y", low, 1.5 * max(map(max, lines.values())), "g")
            axes.set(xscale="log", xlabel="nodes of 8 GPUs, three types", ylabel=unit)
            axes.set_xticks(nodes, list(map(str, nodes)))
            axes.minorticks_off()
            axes.legend()

        return draw

    times = {"wall time": "runtime_s", "CPU time": "cpu_s"}
    seconds = {name: [row[field] for row in rows] for name, field in times.items()}
    gaps = {"gap": [100 * row["gap"] for row in rows]}
    title = "Exact search: time and gap as the cluster grows"
    return picture(title, panel("s", 0.1, seconds), panel("%", 0.01, gaps), size=(8.6, 3.0))


TABLE: dict[str, Column] = {
    "nodes": ("nodes", 1, 0),
    "status": "status",
    "tensor x data x pipeline, micro-batch": config_of,
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
    records = latest(stored(chosen.out))
    console.print(figure_table(records, TABLE))
    if len(records) > 1:
        chosen.out.with_suffix(".svg").write_text(growth_picture(records), encoding="utf-8")
