"""Clusters of extreme links, zones and shares: the exact search against the best values known.

    python -m bench hard [INSTANCES ...] [--time-limit S] [--workers N] [--out RECORDS]

The instances are the files in bench/hard; best_known.json beside them has the shortest step known
of each, whatever found it, and the highest lower bound. Each is solved in a process of its own.
Records go to bench/results/hard.jsonl. A step below a known bound, or a bound above a known step,
fails the run: one of the two is wrong.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.table import Table

from bench.command import (
    Column,
    all_cores,
    command,
    figure_table,
    num_open,
    search_options,
    wide_console,
)
from bench.records import ROOT, append, json_of, record
from bench.scaling import measure
from bench.searches import Figures, apart, head
from formulations.instance.load import load_instance
from solver.options import SolveOptions

INSTANCES = ROOT / "bench" / "hard"
BEST_KNOWN = INSTANCES / "best_known.json"

#: Shortest step and highest lower bound known, ns, by instance.
Known = dict[str, dict[str, float]]


def solved(path: Path, options: SolveOptions, known: Known) -> Figures:
    """The record of one instance file, beside what is known of it."""
    instance = load_instance(path)
    asked = head(path.stem, instance, options) | {"best_known": known.get(path.stem)}
    return record("hard", asked | apart(measure, instance, options))


def contradiction(one: Figures) -> str | None:
    """What a record says against the best values known, if it does."""
    known, step, bound = one["best_known"], one.get("step_time_ns"), one.get("bound")
    if known and step is not None and step < known["bound_ns"]:
        return f"{one['instance']}: a step of {step} ns, below the bound {known['bound_ns']:.0f} ns"
    if known and bound is not None and bound > known["step_time_ns"]:
        return f"{one['instance']}: a bound of {bound:.0f} ns, above {known['step_time_ns']:.0f} ns"
    return None


def improved(known: Known, records: Iterable[Figures]) -> Known:
    """The best values known after these records."""
    best = {name: dict(values) for name, values in known.items()}
    for one in records:
        if one.get("step_time_ns") is None:
            continue
        step, bound = float(one["step_time_ns"]), float(one["bound"] or 0)
        old = best.get(one["instance"], {"step_time_ns": step, "bound_ns": bound})
        best[one["instance"]] = {
            "step_time_ns": min(step, old["step_time_ns"]),
            "bound_ns": max(bound, old["bound_ns"]),
        }
    return best


def table(records: Iterable[Figures]) -> Table:
    """One line per record."""

    def above(one: Figures) -> float | None:
        step, known = one.get("step_time_ns"), one["best_known"]
        return step / known["step_time_ns"] - 1 if step and known else None

    columns: dict[str, Column] = {
        "instance": "instance",
        "status": "status",
        "step s": ("step_time_ns", 1e-9, 4),
        "above best %": (above, 100, 2),
        "gap %": ("gap", 100, 2),
        "open configurations": (num_open, 1, 0),
        "seconds": ("runtime_s", 1, 1),
        "CPU s": ("cpu_s", 1, 1),
    }
    return figure_table(records, columns)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = command("hard", time_limit=60.0, seed=0, workers=all_cores())
    names = sorted(path.stem for path in INSTANCES.glob("*.yaml"))
    parser.add_argument("instances", nargs="*", metavar="INSTANCE", help=", ".join(names))
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.instances) - set(names))
    if unknown:
        parser.error(f"no instance {unknown[0]}; there are {', '.join(names)}")
    chosen.instances = chosen.instances or names
    return chosen


def main() -> None:
    """Runs the benchmark; a record is stored after every instance, best values at the end."""
    chosen = arguments()
    options = search_options(chosen)
    known: Known = json_of(BEST_KNOWN)
    console, records = wide_console(), []
    for name in chosen.instances:
        console.print(f"{name} ...")
        records.append(solved(INSTANCES / f"{name}.yaml", options, known))
        append(chosen.out, records[-1:])
    console.print(table(records))
    wrong = [text for one in records if (text := contradiction(one))]
    if wrong:
        sys.exit("\n".join(wrong))
    best = json.dumps(improved(known, records), indent=1, sort_keys=True)
    BEST_KNOWN.write_text(best + "\n", encoding="utf-8")
