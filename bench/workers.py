"""What more workers bring: two of Ray beside two processes, and many more of them on paper.

    python -m bench workers [INSTANCE] [--gap G] [--repeats N] [--out RECORDS]

Local processes and Ray actors solve the instance in turns; the start of Ray is not counted. Then
the processor times of all answers, as a study keeps them, are dealt out to more workers in the
order of the queue, round by round; what one process does besides, first plans and closed-form
bounds, stays as long as it is.
"""

import argparse
import heapq
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.command import command, new_table
from bench.records import ROOT, append, cpu_seconds, record
from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.options import Engine, SolveOptions
from solver.search.driver import solve
from solver.search.fathoming import Answers
from solver.study.store import open_study

#: Workers that the times are dealt out to.
MANY = (1, 2, 16, 256)
ENGINES: tuple[Engine, ...] = ("processes", "ray")

#: Seconds of the tasks of every round, in the order of the queue.
Rounds = Mapping[int | None, Sequence[float]]


def task_times(instance: Instance, gap: float) -> tuple[float, Rounds]:
    """Processor seconds of a search alone, and of its answers by their effort."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        study = stack.enter_context(open_study(folder / "study.db", instance))
        began_s = cpu_seconds()
        solve(instance, SolveOptions(gap=gap), None, study)
        whole_s, rounds = cpu_seconds() - began_s, dict[int | None, list[float]]()
        for answer in Answers(study).every():
            rounds.setdefault(answer.question.effort, []).append(answer.spent_s)
    return whole_s, rounds


def dealt_s(tasks: Iterable[float], workers: int) -> float:
    """When the last is done, if whoever is free first takes the next."""
    free = [0.0] * workers
    for task_s in tasks:
        heapq.heapreplace(free, free[0] + task_s)
    return max(free)


def estimated_s(whole_s: float, rounds: Rounds, workers: int) -> float:
    """Of a search with so many workers; those of a round wait for each other at its end."""
    alone_s = whole_s - sum(map(sum, rounds.values()))
    return alone_s + sum(dealt_s(tasks, workers) for tasks in rounds.values())


def measured(path: Path, options: SolveOptions) -> dict[str, Any]:
    """One search: its seconds, and what it found."""
    began_s = time.perf_counter()
    result = solve(load_instance(path), options)
    return {
        "engine": options.engine,
        "workers": options.workers,
        "seconds": time.perf_counter() - began_s,
        "objective": result.objective,
        "gap": result.gap,
    }


def in_turns(path: Path, gap: float, repeats: int) -> Iterator[dict[str, Any]]:
    """Both engines with two workers, so often, each in a process of its own, which stays.

    The first run of each is not counted: it starts the workers of Ray.
    """
    options = [SolveOptions(gap=gap, workers=2, engine=engine) for engine in ENGINES]
    with ExitStack() as stack:
        new, spawn = ProcessPoolExecutor, get_context("spawn")
        pools = [stack.enter_context(new(1, mp_context=spawn)) for _ in options]
        for repeat in range(repeats + 1):
            for pool, one in zip(pools, options, strict=True):
                found = pool.submit(measured, path, one).result()
                if repeat:
                    yield found


def table(runs: Sequence[Mapping[str, Any]], whole_s: float, rounds: Rounds) -> Table:
    """Seconds measured, and on paper."""
    found = new_table(("workers", "by"), ("seconds", "times one"))
    for engine in ENGINES:
        seconds = [run["seconds"] for run in runs if run["engine"] == engine]
        if seconds:
            found.add_row("2", f"{engine}, measured", f"{statistics.median(seconds):.2f}", "")
    for workers in MANY:
        seconds_s = estimated_s(whole_s, rounds, workers)
        found.add_row(str(workers), "paper", f"{seconds_s:.2f}", f"{whole_s / seconds_s:.2f}")
    return found


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = command("workers", gap=0.001, repeats=5)
    usual = ROOT / "bench" / "scaling" / "nodes_064.yaml"
    parser.add_argument("instance", nargs="?", type=Path, default=usual)
    return parser.parse_args()


def main() -> None:
    """Runs the benchmark, and stores one record."""
    chosen = arguments()
    instance = load_instance(chosen.instance)
    whole_s, rounds = task_times(instance, chosen.gap)
    runs = list(in_turns(chosen.instance, chosen.gap, chosen.repeats)) if chosen.repeats else []
    figures = {
        "instance": chosen.instance.stem,
        "gap": chosen.gap,
        "runs": runs,
        "alone_cpu_s": whole_s,
        "tasks": sum(map(len, rounds.values())),
        "longest_task_s": max(map(max, rounds.values()), default=0.0),
        "tasks_cpu_s": sum(map(sum, rounds.values())),
        "paper_s": {workers: estimated_s(whole_s, rounds, workers) for workers in MANY},
    }
    append(chosen.out, [record("workers", figures)])
    Console().print(table(runs, whole_s, rounds))
