"""How far the analytic model is from published steps that no figure was fitted to.

    python -m bench accuracy [--out RECORDS] [--picture FILE] [--draws N]

Then, on measured steps of A100 (`accuracy_choices`), error and regret of the model, of its
corrections by measured steps (`hetplan calibrate`), and of other rules.

Every row that can be expressed becomes an instance and a plan (`accuracy_rows`), whose step is
simulated; the others are counted by what is missing. Records go to bench/results/accuracy.jsonl,
the picture to bench/results/accuracy.svg.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from bench.accuracy_choices import DRAWS, choices, figures
from bench.accuracy_rows import Case, cases
from bench.command import command, new_table, wide_console
from bench.records import RESULTS, append, record, reference
from bench.scatter import Point, scatter_picture
from formulations.costs.plan_costs import plan_costs
from solver.simulate import step_time_ns

Figures = dict[str, Any]


def predicted(case: Case) -> Figures:
    """The row with our step, or with what is missing."""
    figures: Figures = {
        "source": case.source,
        "model": case.model,
        "row": case.label,
        "system": case.system,
        "precision": case.precision,
        "measured_s": case.measured_s,
        "published_prediction_s": case.other_s,
        "why_not": case.why_not,
        "predicted_s": None,
        "error": None,
        "efficiency": None,
    }
    if case.plan is None:
        return figures
    instance, plan = case.plan
    step_s = step_time_ns(plan_costs(instance, plan)) / 1e9
    gpu = instance.cluster.groups[0].gpu
    return figures | {
        "predicted_s": step_s,
        "error": step_s / case.measured_s - 1,
        "efficiency": gpu.efficiency_evidence(instance.workload.precision).kind,
    }


def table(rows: Sequence[Figures]) -> Table:
    """Error by source, model, system and precision."""
    result = new_table(
        ("source", "model", "system", "precision", "efficiency"),
        ("rows", "mean %", "least %", "most %", "published %"),
    )
    keys = ("source", "model", "system", "precision", "efficiency")
    for key in dict.fromkeys(tuple(row[name] for name in keys) for row in rows):
        own = [row for row in rows if tuple(row[name] for name in keys) == key]
        errors = 100 * np.array([row["error"] for row in own])
        others = [row["published_prediction_s"] for row in own]
        published = [
            other / row["measured_s"] - 1 for other, row in zip(others, own, strict=True) if other
        ]
        result.add_row(
            *key,
            str(len(own)),
            *(f"{value:+.1f}" for value in (errors.mean(), errors.min(), errors.max())),
            f"{100 * np.mean(published):+.1f}" if published else "",
        )
    return result


def choice_table(rows: Sequence[Figures]) -> Table:
    """Error and regret by rule."""
    result = new_table(("layer times, or rule",), ("steps", "error %", "regret %"))
    for row in rows:
        error = "" if row["error"] is None else f"{100 * row['error']:.1f}"
        result.add_row(row["rule"], str(row["steps"]), error, f"{100 * row['regret']:.2f}")
    return result


def picture(rows: Sequence[Figures]) -> str:
    """Predicted over measured seconds, a colour per model and source."""
    points = [
        Point(f"{row['model']} ({row['source']})", row["measured_s"], row["predicted_s"])
        for row in sorted(rows, key=lambda row: (row["source"], row["model"]))
    ]
    return scatter_picture("steps of training", "measured, s", "predicted, s", points)


def main() -> None:
    """Runs the benchmark."""
    parser = command("accuracy")
    parser.add_argument("--picture", type=Path, default=RESULTS / "accuracy.svg")
    parser.add_argument("--draws", type=int, default=DRAWS, help="of one step per kernel shape")
    chosen = parser.parse_args()
    files = ("simumax/b200_steps.json", "megatron_bridge/throughput.json", "measured/*single*.csv")
    folder = reference(*files)
    rows = [predicted(case) for case in cases(folder)]
    done = [row for row in rows if row["error"] is not None]
    left = Counter((row["source"], row["why_not"]) for row in rows if row["why_not"])
    rules = list(figures(choices(folder), chosen.draws))
    found = {"rows": done, "left_out": _named(left), "choices": rules, "draws": chosen.draws}
    append(chosen.out, [record("accuracy", found)])
    chosen.picture.write_text(picture(done), encoding="utf-8")
    console = wide_console()
    console.print(table(done))
    console.print(choice_table(rules))
    for (source, why), count in left.items():
        console.print(f"{source}: {count} rows left out: {why}")


def _named(left: Counter[tuple[str, str]]) -> list[Figures]:
    return [{"source": source, "why": why, "rows": count} for (source, why), count in left.items()]
