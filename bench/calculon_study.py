"""Our best plan of GPT-3 175B on 1,024 A100, proved, beside the best of Calculon's by our model.

    python -m bench calculon_study [--schedules NAME ...] [--time-limit S] [--gap G] [--workers N]

The plan space is that of `bench/calculon/*.yaml`, which has every configuration of Calculon's that
`calculon` expresses, and more: any degrees, splits, and recomputation per stage. Records go to
bench/results/calculon_study.jsonl. Fails if a plan of Calculon's that fits is below our bound.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.calculon import FILE, configurations, instances, planned, why_not
from bench.command import command, search_options
from bench.records import append, record, reference
from bench.runs import Row
from bench.scaling import measure
from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from solver.options import SolveOptions
from solver.simulate import step_time_ns

Figures = dict[str, Any]
#: Of schedules, the names in Calculon's rows.
SCHEDULES = ("1f1b", "interleaved")


def with_schedules(base: Instance, schedules: Sequence[str]) -> Instance:
    """The plan space with these schedules alone."""
    return base.but(search={"schedule": tuple(schedules)})


def priced(base: Instance, rows: Sequence[Row]) -> list[tuple[int, Row]]:
    """Steps of the rows whose plans the space has and whose memory fits by our model; ns."""
    found = []
    for row in rows:
        chunks = row["virtual_pipeline"] > 1
        if why_not(row) or SCHEDULES[chunks] not in base.search.schedule:
            continue
        instance, plan = planned(base, row)
        costs = plan_costs(instance, plan)
        if (costs.memory_bytes <= costs.limit_bytes).all():
            found.append((step_time_ns(costs), row))
    return found


def compared(base: Instance, rows: Sequence[Row], options: SolveOptions) -> Figures:
    """Our best plan, its bound, and Calculon's: its own best, and its best by our model."""
    theirs = priced(base, rows)
    best_ns, best = min(theirs, key=lambda pair: pair[0])
    first_ns, first = theirs[0]
    return {
        "instance": base.name,
        "schedules": base.search.schedule,
        "options": asdict(options),
        "fitting_rows": len(theirs),
        "their_best": dict(first),
        "their_best_ns": first_ns,
        "best_of_theirs": dict(best),
        "best_of_theirs_ns": best_ns,
        "ours": measure(base, options),
    }


def main() -> None:
    """Runs the study."""
    parser = command("calculon_study", time_limit=60.0, gap=0.01, workers=1)
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=list(SCHEDULES))
    chosen = parser.parse_args()
    rows = configurations(reference(FILE))
    options = search_options(chosen)
    for base in instances().values():
        figures = compared(with_schedules(base, chosen.schedules), rows, options)
        append(chosen.out, [record("calculon_study", figures)])
        ours = figures["ours"]
        print(
            f"{base.name} {'+'.join(chosen.schedules)}: ours {ours['step_time_ns'] / 1e9:.3f} s, "
            f"{ours['status']}, gap {ours['gap']:.2%}, {ours['cpu_s']:.1f} s CPU; Calculon's best "
            f"{figures['their_best_ns'] / 1e9:.3f} s, of all its "
            f"{figures['fitting_rows']} that fit {figures['best_of_theirs_ns'] / 1e9:.3f} s"
        )
        if figures["best_of_theirs_ns"] < ours["bound"]:
            sys.exit("a plan of Calculon's is below our bound")
