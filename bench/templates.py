"""Template generation beside Oobleck's planner: seconds on the paper's grid, and quality.

    python -m bench templates [quality] [latency] [--micro-batches M] [--time-limit S] [--repeats N]

`quality`: every stored output of the public planner under both objectives. `latency`: the grid of
the paper's Table 3. Fails if a template's T1 + T2 + T3 is above the public planner's. Needs the
reference folder (HETPLAN_REFERENCE), without which it ends with exit code 2. Records go to
bench/results/templates.jsonl.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bench.command import command
from bench.oobleck_templates import oobleck_templates, step_time, value_of
from bench.planner import PS_PER_MS, PlannerCase, places, read_case
from bench.records import append, cpu_seconds, json_of, record, reference
from formulations.fleet import Template
from solver.graph.places import PlaceCosts
from solver.interrupt import Deadline, NoTimeError
from solver.templates.step_time import TemplateOutcome, best_template


def costs_of(case: PlannerCase) -> PlaceCosts:
    """Tables of a case, the same for one stage and for several."""
    tables = places(case)
    return PlaceCosts(tables, tables)


def finals_of(case: PlannerCase) -> dict[int, list[tuple[int, ...]]]:
    """Every number of nodes, from 1 on."""
    return {n: [(n,)] for n in range(1, case.max_nodes + 1)}


def by_step_time(
    costs: PlaceCosts, case: PlannerCase, micro_batches: int, limit_s: float
) -> dict[int, TemplateOutcome]:
    """Templates of least step time of all sizes, in `limit_s` together."""
    finals = finals_of(case)
    deadline, parts = Deadline(limit_s), range(len(finals), 0, -1)
    return {
        n: best_template(
            costs, finals[n], micro_batches, Deadline((deadline.left_s or 0.0) / number).over
        )
        for number, n in zip(parts, finals, strict=True)
    }


@dataclass(frozen=True)
class Seconds:
    """Seconds for all templates of a case: ours, by both objectives; CPU seconds of the latter."""

    oobleck_s: float
    step_time_s: float
    step_time_cpu_s: float
    outcomes: dict[int, TemplateOutcome]
    templates: dict[int, Template]

    @property
    def figures(self) -> dict[str, Any]:
        """For a record; gaps are of the step time."""
        gaps = [1 - one.bound / one.value for one in self.outcomes.values() if one.value]
        return {
            "oobleck_s": self.oobleck_s,
            "step_time_s": self.step_time_s,
            "step_time_cpu_s": self.step_time_cpu_s,
            "sizes": len(self.outcomes),
            "optimal": sum(gap <= 0 for gap in gaps),
            "largest_gap": max(gaps, default=None),
        }


def generated(case: PlannerCase, micro_batches: int, limit_s: float, repeats: int) -> Seconds:
    """All templates of a case; the least seconds of T1 + T2 + T3, tables included."""
    walls = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        costs = costs_of(case)
        templates = oobleck_templates(costs, finals_of(case))
        walls.append(time.perf_counter() - start_s)
    start_s, start_cpu_s = time.perf_counter(), cpu_seconds()
    outcomes = by_step_time(costs, case, micro_batches, limit_s) if limit_s else {}
    wall_s, cpu_s = time.perf_counter() - start_s, cpu_seconds() - start_cpu_s
    return Seconds(min(walls), wall_s, cpu_s, outcomes, templates)


def quality(case: PlannerCase, found: Seconds, micro_batches: int) -> dict[str, Any]:
    """Both objectives of the public planner's templates beside ours, by number of nodes.

    value_ratio: T1 + T2 + T3 of ours over its; step_ratio: simulated step of its template over
    that of ours by step time; own_step_ratio: the same for our template by T1 + T2 + T3.
    """
    costs = costs_of(case)
    rows = []
    for n, theirs in case.templates.items():
        ours, value = found.templates[n], value_of(costs, theirs.template)
        step, best = step_time(costs, theirs.template, micro_batches), found.outcomes[n].value
        if best is None:  # memory is not checked, so every size has a template
            raise NoTimeError(f"no template of {n} nodes within the limit; raise --time-limit")
        rows.append(
            {
                "nodes": n,
                "value_ms": value_of(costs, ours) / PS_PER_MS,
                "public_value_ms": value / PS_PER_MS,
                "value_ratio": value_of(costs, ours) / value,
                "step_ms": best / PS_PER_MS,
                "public_step_ms": step / PS_PER_MS,
                "step_ratio": step / best,
                "own_step_ratio": step_time(costs, ours, micro_batches) / best,
            }
        )
    return {"public_planner_wall_s": case.wall_s, "rows": rows}


def quality_line(name: str, figures: dict[str, Any]) -> str:
    """One file in words."""
    rows = figures["rows"]
    ratios = [row["step_ratio"] - 1 for row in rows]
    lower = [row["nodes"] for row in rows if row["value_ratio"] < 1 - 1e-12]
    return (
        f"{name}: T1+T2+T3 never above in {sum(row['value_ratio'] <= 1 for row in rows)} of "
        f"{len(rows)}, below at {lower or 'none'}; step of its templates {mean(ratios):+.1%} mean, "
        f"{max(ratios):+.1%} worst; {figures['optimal']} of {figures['sizes']} step times optimal; "
        f"{figures['oobleck_s']:.2f} s and {figures['step_time_s']:.1f} s, "
        f"planner {figures['public_planner_wall_s']:.1f} s"
    )


def grid(folder: Path) -> Iterator[tuple[PlannerCase, dict[str, Any]]]:
    """Cases of Table 3 with the paper's and measured seconds; layers repeat those of the files."""
    rows = json_of(folder / "table3.json")["rows"]
    for row in rows:
        name = f"L24_N{row['nodes']}_G{row['gpus_per_node']}.json"
        case = read_case(folder / "planner" / name)
        yield case.resized(row["layers"]) if row["layers"] != len(case.layers) else case, row


def latency_line(row: dict[str, Any], figures: dict[str, Any]) -> str:
    """One case of the grid in words."""
    public = row["public_planner_wall_s"]
    gap = figures["largest_gap"]
    step = (
        f"; step time {figures['step_time_s']:.1f} s ({figures['step_time_cpu_s']:.1f} s of CPU), "
        f"{figures['optimal']} of {figures['sizes']} "
        f"optimal, largest gap {gap:.1%}"
        if gap is not None
        else ""
    )
    return (
        f"{row['layers']} layers, {row['nodes']} nodes of {row['gpus_per_node']}: "
        f"{figures['oobleck_s']:.2f} s (paper {row['paper_s']:g} s, public planner "
        f"{'not finished' if public is None else f'{public:.1f} s'}){step}"
    )


def run_quality(folder: Path, chosen: argparse.Namespace) -> bool:
    """Prints and stores every file; whether no value is above the public planner's."""
    good = True
    for path in sorted((folder / "planner").glob("*.json")):
        case = read_case(path)
        found = generated(case, chosen.micro_batches, chosen.time_limit, chosen.repeats)
        figures = found.figures | quality(case, found, chosen.micro_batches)
        head = {"part": "quality", "case": case.name, "micro_batches": chosen.micro_batches}
        append(chosen.out, [record("templates", head | figures)])
        print(quality_line(case.name, figures), flush=True)
        good &= all(row["value_ratio"] <= 1 for row in figures["rows"])
    return good


def run_latency(folder: Path, chosen: argparse.Namespace) -> None:
    """Prints and stores every case of the grid."""
    for case, row in grid(folder):
        found = generated(case, chosen.micro_batches, chosen.time_limit, chosen.repeats)
        head = {"part": "latency", "micro_batches": chosen.micro_batches} | row
        append(chosen.out, [record("templates", head | found.figures)])
        print(latency_line(row, found.figures), flush=True)


def main() -> None:
    """Runs the parts asked for; exit code 1 if a value is above the public planner's."""
    parser = command("templates", time_limit=60.0, repeats=3)
    parser.add_argument("part", nargs="*", choices=[[], "quality", "latency"], help="default: both")
    parser.add_argument("--micro-batches", type=int, default=64, help="of every template")
    chosen = parser.parse_args()
    folder = reference("oobleck/planner/*.json", "oobleck/table3.json") / "oobleck"
    parts = chosen.part or ["quality", "latency"]
    good = run_quality(folder, chosen) if "quality" in parts else True
    if "latency" in parts:
        run_latency(folder, chosen)
    sys.exit(0 if good else 1)
