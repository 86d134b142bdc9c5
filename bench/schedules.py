"""What each pipeline schedule wins over 1F1B, and what it costs in memory, with the proved gap.

    python -m bench schedules [INSTANCE ...] [--time-limit S] [--gap G]

Each schedule alone, then all of them together. Records go to bench/results/schedules.jsonl.
"""

from collections.abc import Sequence
from typing import get_args

from bench.command import Column, command, config_of, figure_table, search_options, wide_console
from bench.gap import each_instance
from bench.records import cpu_seconds, peak_rss_bytes, record
from bench.searches import Figures, apart, head, outcome_of
from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.instance.search import ScheduleName
from solver.options import SolveOptions
from solver.search.driver import solve

ALL: tuple[ScheduleName, ...] = get_args(ScheduleName)
CHUNKS = (2, 4)


def choices() -> dict[str, tuple[ScheduleName, ...]]:
    """Each schedule alone, 1F1B first, and all of them."""
    return {name: (name,) for name in ALL} | {"all": ALL}


def with_schedules(instance: Instance, schedules: Sequence[ScheduleName]) -> Instance:
    """The instance with these to choose from."""
    update = {"schedule": tuple(schedules), "virtual_pipeline": CHUNKS}
    return instance.but(search=update)


def measure(instance: Instance, options: SolveOptions) -> Figures:
    """Outcome of the exact search in this process; memory of the GPU that needs most."""
    start_s = cpu_seconds()
    result = solve(instance, options)
    plan = result.plan
    return outcome_of(result) | {
        "cpu_s": cpu_seconds() - start_s,
        "peak_rss_bytes": peak_rss_bytes(),
        "memory_bytes": int(plan_costs(instance, plan).memory_bytes.max()) if plan else None,
    }


def compare(name: str, instance: Instance, options: SolveOptions) -> list[Figures]:
    """One record per choice, held against 1F1B alone; every search in a process of its own."""
    asked = head(name, instance, options)
    found = []
    for choice, schedules in choices().items():
        figures = apart(measure, with_schedules(instance, schedules), options)
        found.append(record("schedules", asked | {"schedules": choice} | figures))
    usual = found[0]["step_time_ns"]
    for one in found:
        step = one["step_time_ns"]
        one["step_over_1f1b"] = step / usual if step and usual else None
    return found


TABLE: dict[str, Column] = {
    "instance": "instance",
    "schedules": "schedules",
    "configuration tp x dp x pp x vpp, b": config_of,
    "chosen": lambda one: one["shape"]["schedule"] if one.get("shape") else "",
    "status": "status",
    "step ms": ("step_time_ns", 1e-6, 1),
    "over 1F1B": ("step_over_1f1b", 1, 3),
    "gap %": ("gap", 100, 2),
    "most GiB on a GPU": ("memory_bytes", 1 / 2**30, 2),
    "seconds": ("runtime_s", 1, 1),
}


def main() -> None:
    """Runs the benchmark; records are stored after every instance."""
    parser = command("schedules", time_limit=60.0, gap=0.0, seed=0)
    parser.add_argument("instance", nargs="*", help="file, or name in instances/; default: all")
    chosen = parser.parse_args()
    options = search_options(chosen)
    console = wide_console(140)

    def compared(name: str, instance: Instance) -> list[Figures]:
        return compare(name, instance, options)

    records = each_instance(console, chosen.instance, chosen.out, compared)
    console.print(figure_table(records, TABLE))
