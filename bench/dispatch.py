"""Dispatch of 150 sequences over 3 replicas, log-normal lengths: proved gaps, seconds.

    python -m bench dispatch [--draws N] [--instance FILE]

The strategies of an instance of mixed lengths with three replicas or more, three of them, in turn;
longer sequences than they take are drawn again. Records go to bench/results/dispatch.jsonl.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from bench.command import command
from bench.records import INSTANCES, append, cpu_seconds, record
from formulations.instance.load import load_instance
from formulations.lengths.problem import Strategy
from solver.lengths.candidates import candidates
from solver.lengths.dispatch import dispatch

SEQUENCES, REPLICAS = 150, 3
#: Median of the lengths, tokens, and spread of their logarithm: mostly short, a few very long.
MEDIAN, SIGMA = 400, 1.4


def strategies(instance: Path) -> list[Strategy]:
    """Those of the instance with replicas enough, three replicas of each."""
    known = candidates(load_instance(instance)).mixed.strategies
    return [
        replace(one, replicas=tuple(replace(kind, count=1) for kind in one.pipelines[:REPLICAS]))
        for one in known
        if one.dp >= REPLICAS
    ]


def drawn(longest: int, generator: np.random.Generator) -> list[int]:
    """Lengths of so many sequences, none longer than that, tokens."""
    lengths: list[int] = []
    while len(lengths) < SEQUENCES:
        more = generator.lognormal(np.log(MEDIAN), SIGMA, SEQUENCES).astype(int)
        lengths += more[(more > 0) & (more <= longest)].tolist()
    return lengths[:SEQUENCES]


def rows(known: list[Strategy], draws: int) -> Iterator[dict[str, Any]]:
    """One dispatch for every draw; times of the slowest replica in ns."""
    generator = np.random.default_rng(0)
    for k in range(draws):
        strategy = known[k % len(known)]
        lengths = drawn(strategy.longest, generator)
        begin, clock = cpu_seconds(), perf_counter()
        found = dispatch(strategy, lengths, "packed")
        yield {
            "strategy": strategy.name,
            "time_ns": found.time_ns,
            "bound_ns": found.bound_ns,
            "gap": 1 - found.bound_ns / found.time_ns if found.time_ns else 0.0,
            "cpu_s": round(cpu_seconds() - begin, 3),
            "wall_s": round(perf_counter() - clock, 3),
        }


def main() -> None:
    """Prints the largest gap of every strategy."""
    parser = command("dispatch")
    parser.add_argument("--draws", type=int, default=60, help="default: 60")
    default = INSTANCES / "llama2_32b_32_a800.yaml"
    parser.add_argument("--instance", type=Path, default=default, help="default: LLaMA-2 32B")
    chosen = parser.parse_args()
    found = list(rows(strategies(chosen.instance), chosen.draws))
    append(chosen.out, [record("dispatch", one) for one in found])
    for name in dict.fromkeys(one["strategy"] for one in found):
        gaps = [one["gap"] for one in found if one["strategy"] == name]
        seconds = max(one["wall_s"] for one in found if one["strategy"] == name)
        print(
            f"{name:32} gap at most {max(gaps):.2%} in {len(gaps)} draws, {seconds:.2f} s at most"
        )
