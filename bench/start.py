"""End to end, as a user waits: seconds from process start to exit, and peak memory.

    python -m bench start [CASE ...] [--repeats N] [--time-limit S]

Runs `python cli.py solve instances/NAME.yaml --json` as a process of its own. Records go to
bench/results/start.jsonl; time-outs too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.records import INSTANCES, RESULTS, ROOT, append, record, rss_bytes

#: What is kept of the program's JSON output.
KEPT = ("status", "termination", "step_time_s", "lower_bound_s", "gap", "runtime_s")


@dataclass(frozen=True)
class Case:
    """One command: an instance, a gap, and the figures to reach."""

    instance: str
    gap: float
    target_s: float
    target_rss_bytes: int | None = None


CASES = {
    "small": Case("hetero_small", gap=0.0, target_s=5, target_rss_bytes=1 << 30),
    "large": Case("hetero_large_gpt2xl", gap=0.001, target_s=60),
}


def command(case: Case, time_limit_s: float) -> list[str]:
    """The command line that is timed."""
    path = INSTANCES / f"{case.instance}.yaml"
    options = ["--json", "--gap", str(case.gap), "--time-limit", str(time_limit_s)]
    return [sys.executable, "cli.py", "solve", str(path.relative_to(ROOT)), *options]


def timed(arguments: list[str]) -> tuple[dict[str, Any], str]:
    """Wall seconds, peak memory and exit code of a process, and its standard output.

    Linux counts the memory of the parent before the exec into a child's peak; this module
    therefore imports nothing large.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        start_s = time.perf_counter()
        process = subprocess.Popen(arguments, cwd=ROOT, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start_s
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        figures = {
            "wall_s": wall_s,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_rss_bytes": rss_bytes(usage.ru_maxrss),
            "exit_code": process.returncode,
        }
        return figures, output.read()


def measure(name: str, repeats: int, time_limit_s: float) -> list[dict[str, Any]]:
    """One record per run of a case."""
    case = CASES[name]
    records = []
    for repeat in range(repeats):
        figures, output = timed(command(case, time_limit_s))
        answer = json.loads(output) if output else {}
        kept = {key: answer.get(key) for key in KEPT}
        head = {"case": name, "repeat": repeat, "options": asdict(case)}
        records.append(record("start", head | figures | kept))
    return records


def line(records: list[dict[str, Any]]) -> str:
    """One case in words: median and range of the seconds, peak memory, against the target."""
    first = records[0]
    walls = [one["wall_s"] for one in records]
    peak = max(one["peak_rss_bytes"] for one in records) / 2**20
    return (
        f"{first['case']}: {first['status']}, gap {first['gap']}, exit {first['exit_code']}; "
        f"{median(walls):.2f} s (from {min(walls):.2f} to {max(walls):.2f}, {len(walls)} runs; "
        f"target {first['options']['target_s']} s), peak {peak:.0f} MiB"
    )


def main() -> None:
    """Runs the benchmark and prints one line per case."""
    parser = argparse.ArgumentParser(prog="python -m bench start")
    parser.add_argument("case", nargs="*", choices=[[], *CASES], help="default: all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds per run")
    parser.add_argument("--out", type=Path, default=RESULTS / "start.jsonl")
    chosen = parser.parse_args()
    for name in chosen.case or CASES:
        records = measure(name, chosen.repeats, chosen.time_limit)
        append(chosen.out, records)
        print(line(records))
