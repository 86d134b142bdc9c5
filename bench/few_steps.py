"""What a few measured steps of a model say of its other steps, by `hetplan calibrate`.

    python -m bench few_steps [--draws N]

vTrain's steps on A100 (`bench.gpt_rows`): of every model and place (one node, several) a few are
drawn, and all others are predicted with the factors fitted to them, on the linearisation at the
modelled time. Errors: without any step, with all kinds of factors, with those of layers alone, and
with those that `calibrate` keeps.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from math import exp
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.command import command, new_table, wide_console
from bench.evidence import read
from bench.records import append, record, reference
from solver.measure.calibration import NEUTRAL, Fit, Kept, MeasuredStep, Tangent, fit_near

COUNTS = (1, 2, 3, 5, 10)
WAYS: tuple[Kept, ...] = ("none", "layers", "all")
#: Of a model's other steps, so many at most are predicted.
MOST_TESTS = 24
Models = dict[tuple[str, str], list[Tangent]]


def models(folder: Path) -> Models:
    """Steps by place and model."""
    found: Models = {}
    for case in read(folder).cases:
        if case.source == "vTrain" and case.plan is not None and case.measured_s is not None:
            step = MeasuredStep(*case.plan, case.measured_s)
            key = case.kind, case.model
            found.setdefault(key, []).append(Tangent.of(step, dict.fromkeys(step.shapes, NEUTRAL)))
    return found


def mean_error(fit: Fit, tests: Sequence[Tangent]) -> float:
    """Mean |error| of steps, on their linearisation."""
    errors = []
    for test in tests:
        factors = fit.factors(test.step.kernels)
        log_s = sum(x * slope for x, slope in zip(factors, test.slopes, strict=True))
        errors.append(abs(exp(log_s - test.log_ratio) - 1))
    return fmean(errors)


def figures(found: Models, draws: int) -> Iterator[dict[str, Any]]:
    """One line per place and number of steps drawn."""
    for kind in dict.fromkeys(kind for kind, _ in found):
        for count in COUNTS:
            errors: dict[str, list[float]] = {way: [] for way in (*WAYS, "kept")}
            kept: Counter[str] = Counter()
            for steps in (rows for (place, _), rows in found.items() if place == kind):
                for seed in range(draws if len(steps) > count else 0):
                    drawn = random.Random(seed).sample(range(len(steps)), count)
                    rest = [step for i, step in enumerate(steps) if i not in drawn]
                    rest = rest[:: -(-len(rest) // MOST_TESTS)]
                    fits = {way: Fit(tuple(steps[i] for i in drawn), way) for way in WAYS}
                    chosen = fit_near(tuple(steps[i] for i in drawn))
                    kept[chosen.kept] += 1
                    for way, fit in (*fits.items(), ("kept", chosen)):
                        errors[way].append(mean_error(fit, rest))
            means = {way: fmean(values) for way, values in errors.items()}
            yield {"kind": kind, "steps": count, **means, "chosen": dict(kept)}


def main() -> None:
    """Runs the benchmark."""
    parser = command("few_steps")
    parser.add_argument("--draws", type=int, default=8, help="per model")
    chosen = parser.parse_args()
    lines = list(figures(models(reference("measured/*.csv")), chosen.draws))
    append(chosen.out, [record("few_steps", {"lines": lines, "draws": chosen.draws})])
    ways = (*WAYS, "kept")
    table = new_table(("place",), ("steps", *(f"{way} %" for way in ways)), ("chosen",))
    for line in lines:
        errors = (f"{100 * line[way]:.2f}" for way in ways)
        table.add_row(line["kind"], str(line["steps"]), *errors, str(line["chosen"]))
    wide_console().print(table)
