"""Mixtures of experts on 256 GPUs, solved, and DeepSeek-V3 beside the degrees of NVIDIA's recipe.

    python -m bench experts [--time-limit S] [--out RECORDS]

The recipe's degrees are those of the newest row for these GPUs in the performance tables published
with Megatron-Bridge, in whatever file of the reference folder; its step is by our model, cut evenly
by work, whether or not that fits the memory (`accuracy_rows`). A folder without such a row gives
nothing to compare with. Records go to bench/results/experts.jsonl. A plan of ours that takes more
than 1.15 times as long fails the run.
"""

import sys
from dataclasses import asdict
from pathlib import Path

from bench.command import (
    Column,
    all_cores,
    command,
    figure_table,
    num_open,
    search_options,
    wide_console,
)
from bench.evidence import KINDS, case_of, rows_from
from bench.records import ROOT, append, record, reference
from bench.runs import Case, plain, step_s
from bench.scaling import measure
from bench.searches import Figures, apart
from formulations.instance.load import load_instance
from solver.options import SolveOptions

#: Instances, and the (model, system) of a recipe whose degrees are compared.
INSTANCES: dict[str, tuple[str, str] | None] = {
    "instances/qwen3_30b_a3b_256_h100.yaml": None,
    "instances/mixtral_8x7b_256_h100.yaml": None,
    "bench/experts/deepseek_v3_256_gb200.yaml": ("DeepSeekV3", "DGX-GB200"),
}
BRIDGE = next(kind for kind in KINDS if kind.source == "Megatron-Bridge")
MOST = 1.15


def recipe_s(folder: Path, model: str, system: str) -> float | None:
    """Step, by our model, of the degrees of the newest row; None without one."""
    newest: tuple[list[int], Case] | None = None
    for row in rows_from(folder, "Megatron-Bridge"):
        wanted = plain(str(row.get("model"))) == plain(model) and row["system"] == system
        case = case_of(row, BRIDGE) if wanted else None
        if case is not None and case.plan is not None:
            release = [int(part) for part in str(row["release"]).split(".")]
            newest = max(newest or (release, case), (release, case), key=lambda pair: pair[0])
    return step_s(newest[1].plan) if newest and newest[1].plan else None


def solved(name: str, folder: Path, options: SolveOptions) -> Figures:
    """The record of one instance file."""
    recipe = INSTANCES[name]
    head = {
        "instance": Path(name).stem,
        "options": asdict(options),
        "recipe_s": recipe_s(folder, *recipe) if recipe else None,
    }
    return record("experts", head | apart(measure, load_instance(ROOT / name), options))


def too_slow(one: Figures) -> bool:
    """Whether the recipe's degrees are far better."""
    step_ns, recipe = one["step_time_ns"], one["recipe_s"]
    return bool(recipe) and (step_ns is None or step_ns / 1e9 > MOST * recipe)


TABLE: dict[str, Column] = {
    "instance": "instance",
    "status": "status",
    "step s": ("step_time_ns", 1e-9, 3),
    "recipe s": ("recipe_s", 1, 3),
    "gap %": ("gap", 100, 2),
    "open configurations": (num_open, 1, 0),
    "seconds": ("runtime_s", 1, 1),
    "CPU s": ("cpu_s", 1, 1),
}


def main() -> None:
    """Runs the benchmark."""
    chosen = command("experts", time_limit=120.0, workers=all_cores()).parse_args()
    folder = reference()
    options = search_options(chosen)
    records = []
    for name in INSTANCES:
        records.append(solved(name, folder, options))
        append(chosen.out, records[-1:])
    console = wide_console()
    console.print(figure_table(records, TABLE))
    if any(map(too_slow, records)):
        sys.exit(f"a step of more than {MOST} times that of a recipe's degrees")
