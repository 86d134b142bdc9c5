"""The exact engine on stored pipelines: least step time, proved bound, seconds.

    python -m bench splits FILE [--json] [--gap G] [--time-limit S] [--repeats N] [--out RECORDS]

FILE is in the format of `bench/pipelines.py`. `--json` prints a list of {name, step_time, bound,
seconds}, the same figures as the table. `bound`: no split is faster; it equals `step_time` where
that is proved optimal. Exit status 1 if a stored optimum is contradicted, 2 for a bad file.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from bench.command import new_table, wide_console
from bench.pipelines import Pipeline, read_pipelines
from bench.records import append, record
from formulations.costs.intervals import interval_sums
from formulations.errors import InstanceError
from formulations.instance.search import ScheduleName
from solver.enumeration.engine import solve_split
from solver.graph.problem import Arcs, Array, SplitProblem

Stop = Callable[[], bool]


@dataclass(frozen=True)
class Solved:
    """One case: best step time found, proved bound, least seconds of all repeats."""

    name: str
    step_time: int
    bound: int
    seconds: float
    cpu_seconds: float
    repeats: int


def chain_problem(
    schedule: ScheduleName,
    micro_batches: int,
    forward: Array,
    backward: Array,
    send: Sequence[int],
    send_back: Sequence[int],
    blocking: bool = False,
) -> SplitProblem:
    """One pipeline with given times [p, L] and transfers [p - 1], and nothing after it."""
    p, size = forward.shape[0], forward.shape[1] + 1
    ends = np.arange(size)
    allowed = ends[None, :] > ends[:, None]
    zero = np.zeros(1, dtype=np.int64)
    stages = tuple(
        Arcs(
            source=zero,
            target=zero,
            column=np.array([[k]]),
            send=np.array([[send[k - 1] if k else 0]]),
            send_back=np.array([[send_back[k - 1] if k else 0]]),
            tail=zero,
            embedding=zero,
            allowed=(allowed,),
            begins=((),),
        )
        for k in range(p)
    )
    nothing = np.zeros((1, size, size), dtype=np.int64)
    return SplitProblem(
        schedule=schedule,
        blocking=blocking,
        tied=False,
        stages=stages,
        micro_batches=(micro_batches,),
        forward=interval_sums(forward),
        backward=interval_sums(backward),
        sync=nothing,
        finish=nothing,
    )


def optimum(case: Pipeline, gap: float, stop: Stop) -> tuple[int, int]:
    """Step time of the best split found, and a proved lower bound of all splits."""
    problem = chain_problem(
        case.schedule,
        case.micro_batches,
        case.forward,
        case.backward,
        case.send_forward,
        case.send_backward,
        case.blocking_sends,
    )
    above_all = 2 + math.ceil(case.longest / (1 - gap))
    found = solve_split(problem, above_all, gap, stop)
    if found.step_time_ns is None:
        raise RuntimeError(f"{case.name}: no split below the longest step there can be")
    return found.step_time_ns, found.bound_ns


def solve(case: Pipeline, gap: float, time_limit_s: float | None, repeats: int) -> Solved:
    """The case solved `repeats` times, each within the limit; the figures of the best run."""
    runs = []
    for _ in range(repeats):
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        end_s = math.inf if time_limit_s is None else begin_s + time_limit_s

        def stop(end_s: float = end_s) -> bool:
            return time.perf_counter() > end_s

        found = optimum(case, gap, stop)
        runs.append((*found, time.perf_counter() - begin_s, time.process_time() - cpu_s))
    steps, bounds, seconds, cpu = zip(*runs, strict=True)
    return Solved(case.name, min(steps), max(bounds), min(seconds), min(cpu), repeats)


def contradiction(case: Pipeline, solved: Solved) -> str | None:
    """What is wrong with a result, held against the stored optimum; None if nothing is."""
    stored = case.optimal_step_time
    if stored is None or solved.bound <= stored <= solved.step_time:
        return None
    found = f"step time {solved.step_time}, bound {solved.bound}"
    return f"{case.name}: {found}, but the stored optimum is {stored}"


def table(cases: Sequence[Pipeline], found: Sequence[Solved]) -> Table:
    """One line per case."""
    result = new_table(
        ("case", "schedule"),
        ("layers", "stages", "micro-batches", "step time", "bound", "gap %", "seconds"),
    )
    for case, one in zip(cases, found, strict=True):
        sizes = (len(case.layer_forward), len(case.stage_slowness), case.micro_batches)
        gap = 1 - one.bound / one.step_time if one.step_time else 0.0
        figures = (str(one.step_time), str(one.bound), f"{100 * gap:.3f}", f"{one.seconds:.4f}")
        result.add_row(case.name, case.schedule, *map(str, sizes), *figures)
    return result


def records(
    path: Path, cases: Iterable[Pipeline], found: Iterable[Solved], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """One record per case."""
    load = os.getloadavg()[0]
    return [
        record(
            "splits",
            {
                "file": path.name,
                "optimal_step_time": case.optimal_step_time,
                "options": options,
                "load_average": load,
            }
            | asdict(one),
        )
        for case, one in zip(cases, found, strict=True)
    ]


def named(cases: tuple[Pipeline, ...], names: Sequence[str] | None) -> tuple[Pipeline, ...]:
    """The cases with these names, all for None; InstanceError for a name that no case has."""
    known = [case.name for case in cases]
    for name in names or ():
        if name not in known:
            raise InstanceError("--case", f"no case {name!r}", ", ".join(known))
    return tuple(case for case in cases if names is None or case.name in names)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench splits")
    parser.add_argument("file", type=Path, help="cases, see bench/pipelines.py")
    parser.add_argument("--json", action="store_true", help="print a JSON list, not a table")
    parser.add_argument("--gap", type=float, default=0.0, help="relative gap to prove")
    parser.add_argument("--time-limit", type=float, help="seconds per case and run")
    parser.add_argument("--repeats", type=int, default=1, help="runs per case; the fastest counts")
    parser.add_argument("--case", nargs="+", help="names of the cases to run; default: all")
    parser.add_argument("--out", type=Path, help="file to append records to")
    chosen = parser.parse_args()
    if not 0 <= chosen.gap <= 0.5:
        parser.error("--gap must be from 0 to 0.5")
    if chosen.repeats < 1:
        parser.error("--repeats must be at least 1")
    return chosen


def main() -> None:
    """Solves the cases of a file."""
    chosen = arguments()
    try:
        cases = named(read_pipelines(chosen.file), chosen.case)
    except InstanceError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    found = [solve(case, chosen.gap, chosen.time_limit, chosen.repeats) for case in cases]
    if chosen.json:
        names = ("name", "step_time", "bound", "seconds")
        print(json.dumps([{name: getattr(one, name) for name in names} for one in found], indent=1))
    else:
        console = wide_console()
        console.print(table(cases, found))
    if chosen.out:
        options = {"gap": chosen.gap, "time_limit_s": chosen.time_limit}
        append(chosen.out, records(chosen.file, cases, found, options))
    wrong = [contradiction(case, one) for case, one in zip(cases, found, strict=True)]
    if any(wrong):
        sys.exit("\n".join(line for line in wrong if line))
