"""FASOP's plans against ours: step times by one simulator, and the seconds of our search.

    python -m bench fasop [CASE ...] [--repeats N] [--gap G] [--time-limit S] [--workers N]

Two runs of ours: "full", `python cli.py solve` as a process of its own in the whole plan space of
the instance, and "theirs", the same search in FASOP's smaller plan space. FASOP's plans are those
of the reference folder; its seconds, of another day, are compared with nothing. Records go to
bench/results/fasop.jsonl. Exit status 1 if a plan of theirs that is in our plan space is faster
than ours or than our bound.
"""

import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from bench.command import command, new_table, search_options, wide_console
from bench.fasop_plans import CASES, judge, read_plan, read_published, their_space
from bench.gap import measure
from bench.records import INSTANCES, ROOT, append, config_text, record, reference
from bench.searches import Figures, apart
from bench.start import timed
from formulations.errors import InstanceError
from formulations.instance.load import load_instance
from formulations.units import seconds
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import plan_of


def _no_plan(instance: str) -> InstanceError:
    return InstanceError(
        "--time-limit", f"no plan of {instance}", "a limit that leaves time for one"
    )


def run_process(instance: str, options: SolveOptions) -> Figures:
    """One `solve` of a stored instance as a process: its seconds, result and plan.

    The step time is that of the plan file, judged again as FASOP's plans are. The CPU seconds of
    the search, which other work on the machine hardly changes, are those of a second one.
    """
    path = INSTANCES / f"{instance}.yaml"
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        words = [sys.executable, "cli.py", "solve", str(path.relative_to(ROOT)), "--out", str(plan)]
        words += ["--gap", str(options.gap), "--time-limit", str(options.time_limit_s)]
        words += ["--workers", str(options.workers)]
        figures, _ = timed(words)
        if figures["exit_code"]:
            raise _no_plan(instance)
        document = PlanDocument.read(plan)
    judged = judge(document.instance, plan_of(document))
    if judged.outside:
        raise RuntimeError(f"{instance}: our own plan is no plan: {', '.join(judged.outside)}")
    return {
        "space": "full",
        "status": document.status,
        "step_time_s": seconds(judged.step_time_ns),
        "bound_s": document.lower_bound_s,
        "search_s": document.runtime_s,
        "search_cpu_s": apart(measure, document.instance, "exact", options)["cpu_s"],
        "process_s": figures["wall_s"],
        "process_cpu_s": figures["cpu_s"],
        "shape": judged.config.model_dump(mode="json"),
        "partition": judged.partition,
    }


def run_theirs(instance: str, options: SolveOptions) -> Figures:
    """One search in FASOP's plan space."""
    narrow = their_space(load_instance(INSTANCES / f"{instance}.yaml"))
    found = apart(measure, narrow, "exact", options)
    if found["step_time_ns"] is None:
        raise _no_plan(instance)
    return {
        "space": "theirs",
        "status": found["status"],
        "step_time_s": seconds(found["step_time_ns"]),
        "bound_s": seconds(found["bound"]),
        "search_s": found["runtime_s"],
        "search_cpu_s": found["cpu_s"],
        "shape": found["shape"],
    }


def searches(case: str, repeats: int, options: SolveOptions) -> list[Figures]:
    """One record per run of ours."""
    runs = [run(CASES[case], options) for run in (run_process, run_theirs) for _ in range(repeats)]
    head = {"kind": "search", "case": case, "instance": CASES[case], "options": asdict(options)}
    load = {"load_average": os.getloadavg()[0]}
    return [record("fasop", head | load | one) for one in runs]


def plans(case: str, ours: Figures, folder: Path) -> list[Figures]:
    """One record per plan of FASOP, held against a run of ours in the full space."""
    instance = load_instance(INSTANCES / f"{CASES[case]}.yaml")
    records = []
    for entry in read_published(folder, case):
        judged = judge(instance, read_plan(instance, entry))
        step_s = seconds(judged.step_time_ns)
        figures = {
            "kind": "plan",
            "case": case,
            "instance": CASES[case],
            "placement": entry["placement"],
            "shape": judged.config.model_dump(mode="json"),
            "partition": judged.partition,
            "published_step_time_s": entry["step_time_s"],
            "step_time_s": step_s,
            "outside": judged.outside,
            "above_ours": step_s / ours["step_time_s"] - 1,
            "above_bound": step_s / ours["bound_s"] - 1,
        }
        records.append(record("fasop", figures))
    return records


def fastest(runs: list[Figures], field: str) -> float:
    """Least seconds of several runs of one search."""
    return min(float(one[field]) for one in runs)


def search_table(records: list[Figures]) -> Table:
    """One line per case and space: the fastest of our runs."""
    result = new_table(
        ("case", "space", "status"), ("step ms", "gap %", "search s", "its cpu s", "process s")
    )
    keys = dict.fromkeys((one["case"], one["space"]) for one in records if one["kind"] == "search")
    for case, space in keys:
        runs = [one for one in records if (one["case"], one.get("space")) == (case, space)]
        first = runs[0]
        gap = 1 - first["bound_s"] / first["step_time_s"]
        result.add_row(
            case,
            space,
            first["status"],
            f"{1000 * first['step_time_s']:.3f}",
            f"{100 * gap:.3f}",
            f"{fastest(runs, 'search_s'):.3f}",
            f"{fastest(runs, 'search_cpu_s'):.3f}",
            f"{fastest(runs, 'process_s'):.2f}" if space == "full" else "",
        )
    return result


def plan_table(records: list[Figures]) -> Table:
    """One line per plan of FASOP's: its own figure, ours, and the distance to our plan."""
    result = new_table(
        ("case", "tp x dp x pp, b", "order", "split"),
        ("FASOP ms", "simulated ms", "above ours %"),
        ("outside our plan space",),
    )
    for one in records:
        if one["kind"] == "plan":
            order = "".join("H" if node.startswith("A100") else "." for node in one["placement"])
            split = " ".join(map(str, one["partition"]))
            result.add_row(
                one["case"],
                config_text(one["shape"]),
                order,
                split if len(split) <= 20 else f"{split[:17]}...",
                f"{1000 * one['published_step_time_s']:.1f}",
                f"{1000 * one['step_time_s']:.1f}",
                f"{100 * one['above_ours']:.2f}",
                "; ".join(one["outside"]),
            )
    return result


def contradictions(records: list[Figures]) -> list[str]:
    """Plans of theirs within our plan space that are faster than ours or than our bound."""
    return [
        f"{one['case']}: a plan of FASOP's takes {one['step_time_s']} s, "
        f"{one['above_ours']:+.2e} of ours, {one['above_bound']:+.2e} of our bound"
        for one in records
        if one["kind"] == "plan"
        and not one["outside"]
        and min(one["above_ours"], one["above_bound"]) < 0
    ]


def main() -> None:
    """Runs the comparison; records are stored after every case."""
    parser = command("fasop", repeats=3, gap=0.0, time_limit=300.0, workers=2)
    parser.add_argument("case", nargs="*", choices=[[], *CASES], help="default: all")
    chosen = parser.parse_args()
    folder = reference("fasop/plans.json")
    options = search_options(chosen)
    console = wide_console(140)
    records: list[Figures] = []
    try:
        for case in chosen.case or CASES:
            console.print(f"{case} ...")
            found = searches(case, chosen.repeats, options)
            found += plans(case, found[0], folder)
            append(chosen.out, found)
            records += found
    except InstanceError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    console.print(search_table(records))
    console.print("H: node of A100, .: node of A10")
    console.print(plan_table(records))
    if wrong := contradictions(records):
        sys.exit("\n".join(wrong))
