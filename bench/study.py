"""How far min-max splits are from the simulated optimum of the same configuration and node order.

    python -m bench study [INSTANCE ...] [--time-limit S] [--out RECORDS]

Cases are the configurations with two stages or more, times node orders, of FASOP's plan space (all
nodes, no recomputation, no ZeRO) of every instance. Compared are the min-max split as FASOP intends
it, the exact min-max split, and FASOP's published plans, where the reference folder has them. A
record of the distributions is added to bench/results/study.jsonl; beside it, study.csv has all
cases and study.svg the picture of the last run.
"""

import csv
import os
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

from bench.cases import Case, ConfigStudy, cases
from bench.command import command, new_table, wide_console
from bench.fasop import CASES, judge, read_plan, read_published
from bench.gap import instance_files
from bench.records import INSTANCES, append, cpu_seconds, record, reference
from formulations.costs.tables import build_tables
from formulations.errors import InstanceError
from formulations.instance.load import load_instance
from solver.report.chart import picture

_FINEST = 0.1  # per cent: below this the axis is linear, above it logarithmic


def steps(distances: Sequence[float]) -> list[tuple[float, float]]:
    """(distance, share of the distances that are at most this), once per distinct distance."""
    ascending = sorted(distances)
    return [
        (value, bisect_right(ascending, value) / len(ascending))
        for value in dict.fromkeys(ascending)
    ]


def distribution_picture(title: str, axis: str, curves: Mapping[str, Sequence[float]]) -> str:
    """A picture of one curve per name: the share of its distances (0.05: 5 %) up to each one.

    At most four non-empty curves; distances are at least 0.
    """
    largest = 100 * max(max(distances) for distances in curves.values())

    def draw(axes: Axes) -> None:
        for name, distances in curves.items():
            points = [
                (0.0, 0.0),
                *((100 * value, 100 * share) for value, share in steps(distances)),
            ]
            above, shares = zip(*points, (largest, 100.0), strict=True)
            axes.step(above, shares, where="post", label=name)
        axes.set_xscale("symlog", linthresh=_FINEST)
        axes.set(xlim=(0, largest), ylim=(0, 101), xlabel=axis, ylabel="share of cases, %")
        axes.xaxis.set_major_formatter("{x:g} %")
        axes.legend(loc="lower right")

    return picture(title, draw)


QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
FIELDS = ("optimum_ns", "bound_ns", "minmax_ns", "exact_ns", "minmax_stage_ns", "exact_stage_ns")
COLUMNS = ("instance", "order", "tp", "dp", "pp", "micro_batch", *FIELDS)


@dataclass(frozen=True)
class PublishedCase:
    """A plan of FASOP's against the optimum of its own configuration and order, ns."""

    case: str
    step_ns: int
    optimum_ns: int
    bound_ns: int


def published(folder: Path, limit_s: float) -> Iterator[PublishedCase]:
    """Every plan of FASOP's that is in our plan space."""
    for case, name in CASES.items():
        instance = load_instance(INSTANCES / f"{name}.yaml")
        for entry in read_published(folder, case):
            plan = read_plan(instance, entry)
            judged = judge(instance, plan)
            if judged.outside:
                continue
            study = ConfigStudy(build_tables(instance, plan.config))
            order = tuple(instance.cluster.node_groups[node] for node in plan.node_order)
            problem = study.problem(order)
            optimum = study.optimum(order, problem, judged.step_time_ns, limit_s)
            yield PublishedCase(case, judged.step_time_ns, *optimum)


def row(case: Case) -> list[Any]:
    """A case as the columns of the record; nodes by group, in order."""
    config = case.config
    order = "".join("abcdefghijklmnop"[j] for j in case.order)
    degrees = (config.widest_tp, config.dp, config.pp, config.micro_batch)
    return [case.instance, order, *degrees, *(getattr(case, name) for name in FIELDS)]


def distances(found: Sequence[Case], plans: Sequence[PublishedCase]) -> dict[str, list[float]]:
    """Relative distance of every split from the least step time known, by method, sorted."""
    result = {
        "min-max as intended": [one.minmax_ns / one.optimum_ns - 1 for one in found],
        "exact min-max": [one.exact_ns / one.optimum_ns - 1 for one in found],
        "FASOP's published plans": [one.step_ns / one.optimum_ns - 1 for one in plans],
    }
    return {name: sorted(values) for name, values in result.items() if values}


def quantile(values: Sequence[float], share: float) -> float:
    """Least of the sorted values that at least this share of them do not exceed."""
    return values[max(0, -(-int(share * 10**6) * len(values) // 10**6) - 1)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Share of zeros, mean, quantiles and largest of sorted distances."""
    figures = {
        "cases": len(values),
        "optimal": sum(value == 0 for value in values) / len(values),
        "mean": sum(values) / len(values),
    }
    figures |= {f"quantile_{share}": quantile(values, share) for share in QUANTILES}
    return figures | {"worst": values[-1]}


def stage_summary(found: Sequence[Case]) -> dict[str, float]:
    """The same for the largest stage time of min-max against the least one."""
    return summary(sorted(one.minmax_stage_ns / one.exact_stage_ns - 1 for one in found))


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def table(summaries: Mapping[str, Mapping[str, float]]) -> Table:
    """One line per name; everything but the number of cases in per cent."""
    quantiles = (f"q {100 * share:g}" for share in QUANTILES)
    result = new_table(("%",), ("cases", "optimal", "mean", *quantiles, "worst"))
    for name, figures in summaries.items():
        cells = [_percent(value) for key, value in figures.items() if key != "cases"]
        result.add_row(name, f"{figures['cases']:.0f}", *cells)
    return result


def worst_line(found: Sequence[Case]) -> str:
    """The case on which min-max as intended does worst."""
    one = max(found, key=lambda case: case.minmax_ns / case.optimum_ns)
    columns = dict(zip(COLUMNS, row(one), strict=True))
    above = _percent(one.minmax_ns / one.optimum_ns - 1)
    where = "{instance}, order {order}, {tp} x {dp} x {pp}, micro-batch {micro_batch}"
    return f"worst of min-max as intended: {above} % on {where.format(**columns)}"


def per_instance(found: Sequence[Case]) -> dict[str, dict[str, float]]:
    """Summaries of min-max as intended, by instance."""
    groups: dict[str, list[float]] = {}
    for one in found:
        groups.setdefault(one.instance, []).append(one.minmax_ns / one.optimum_ns - 1)
    return {name: summary(sorted(values)) for name, values in groups.items()}


def write_cases(path: Path, found: Sequence[Case]) -> None:
    """A line per case under the names of its columns."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row(one) for one in found)


def write_picture(path: Path, spread: Mapping[str, Sequence[float]]) -> None:
    """The distributions as an SVG file."""
    count = len(next(iter(spread.values())))
    title = f"Distance from the simulated optimum of the same degrees and node order, {count} cases"
    text = distribution_picture(title, "above the optimum; the curve is the share of cases", spread)
    path.write_text(text, encoding="utf-8")


def collect(
    names: Sequence[str], limit_s: float, console: Console
) -> tuple[list[Case], list[PublishedCase]]:
    """All cases of the instances, and FASOP's plans if all instances are asked for."""
    found: list[Case] = []
    for path in instance_files(names):
        start_s = time.perf_counter()
        own = list(cases(path.stem, load_instance(path), limit_s))
        console.print(f"{path.stem}: {len(own)} cases, {time.perf_counter() - start_s:.1f} s")
        found += own
    if names or not (folder := reference()).is_dir():
        return found, []
    return found, list(published(folder, limit_s))


def main() -> None:
    """Runs the study; stores the record and the picture."""
    parser = command("study", time_limit=10.0)
    parser.add_argument("instance", nargs="*", help="file, or name in instances/; default: all")
    chosen = parser.parse_args()
    console = wide_console()
    start_s, cpu_s = time.perf_counter(), cpu_seconds()
    try:
        found, plans = collect(chosen.instance, chosen.time_limit, console)
    except InstanceError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    if not found:
        sys.exit("no case: no pipeline fits these instances in FASOP's plan space")
    spread = distances(found, plans)
    summaries = {name: summary(values) for name, values in spread.items()}
    stages = stage_summary(found)
    num_open = sum(one.bound_ns < one.optimum_ns for one in found)
    num_open += sum(one.bound_ns < one.optimum_ns for one in plans)
    figures = {
        "options": {"instances": chosen.instance, "time_limit_s": chosen.time_limit},
        "runtime_s": time.perf_counter() - start_s,
        "cpu_s": cpu_seconds() - cpu_s,
        "load_average": os.getloadavg()[0],
        "summary": summaries,
        "largest_stage": stages,
        "not_proved": num_open,
        "published": [asdict(one) for one in plans],
    }
    append(chosen.out, [record("study", figures)])
    write_cases(chosen.out.with_suffix(".csv"), found)
    write_picture(chosen.out.with_suffix(".svg"), spread)
    console.print(table(per_instance(found)))
    console.print(table({**summaries, "largest stage: min-max against exact": stages}))
    console.print(worst_line(found))
    console.print(
        f"not proved within {chosen.time_limit:g} s: {num_open}; held against the best found"
    )
