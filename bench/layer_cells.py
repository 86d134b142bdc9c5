"""Fits the catalogue's measured layers: A100's to vTrain's steps on one node, B200's to SimuMax's.

    python -m bench layer_cells [--seed N]

A step's log time is linear, near the factors at hand, in the log factors of its blocks and of its
embedding and head: Gauss-Newton on the simulator, with the Gaussian process of
`formulations.costs.layer_factors` as prior and NOISE as the steps' own scatter (Rasmussen and
Williams 2006, equations 2.25 and 2.26, of linear functions of the factors).
Prints what is written to gpus.yaml, fitted to all given rows; and errors where rows were not
fitted: one half drawn at random, the rows of one width by those of others, or where there is one
width those of one tensor degree (all on the last linearisation of all), and other steps on the GPU
type with the same attention, which are never fitted. Of B200 these share sequences among GPUs.

Whether vTrain's runs on one node repeated the forward pass is not stated. `recomputation` counts
the rows that would then be faster than GPUs whose products reach a share of the peak, whose memory
reaches all of its bandwidth, and whose kernels start at once.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from math import exp, hypot, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from bench.command import command, new_table, wide_console
from bench.evidence import read, rows_from
from bench.gpt_rows import vtrain
from bench.records import append, record, reference
from bench.runs import Case, step_s
from formulations.costs.layer_factors import (
    BLOCKS,
    CELL,
    ENDS,
    Floats,
    KernelShape,
    prior,
)
from formulations.instance import Instance
from formulations.instance.machines import Attention, MeasuredLayers
from formulations.plan import Plan

NOISE, ROUNDS, DIFFERENCE, DIGITS = 0.015, 2, 0.02, 3
#: Shares of the peak that products may reach; the best of 183 on A100's PCIe board reaches 0.80.
REACHED = (0.8, 0.85, 0.9)
Planned = tuple[Instance, Plan]


class Fit(NamedTuple):
    """A GPU type's steps of one source and kind, without sequences that GPUs share."""

    gpu: str
    attention: Attention
    source: str
    kind: str


FITS = (
    Fit("A100-80", "plain_attention", "vTrain", "one node"),
    Fit("B200", "fused_attention", "SimuMax", "dense"),
)


def on(planned: Planned, **figures: Any) -> Planned:
    """The same on GPUs of other figures."""
    instance, plan = planned
    groups = [
        group.but(gpu=group.gpu.model_copy(update=figures)) for group in instance.cluster.groups
    ]
    return instance.but(cluster=instance.cluster.with_groups(groups)), plan


def shape_of(planned: Planned) -> KernelShape:
    """Of the blocks of a plan without context parallelism."""
    (instance, plan), config = planned, planned[1].config
    tokens = config.micro_batch * instance.workload.sequence_length
    return KernelShape(instance.workload.hidden_size, plan.config.degrees[0].tp, tokens)


#: Log factors of blocks and of ends.
Logs = Mapping[KernelShape, tuple[float, float]]
SPREADS = (BLOCKS, ENDS)


def layers_of(logs: Logs, digits: int | None = None) -> MeasuredLayers:
    """Of every shape the factors of blocks and ends, as the catalogue has them."""
    tables: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
    for (width, tp, tokens), pair in sorted(logs.items()):
        for table, log_factor in zip(tables, pair, strict=True):
            factor = exp(log_factor) if digits is None else round(exp(log_factor), digits)
            table.setdefault(width, {}).setdefault(tp, {})[tokens] = factor
    about = {
        "source": "fitted",
        "evidence": "steps",
        "precisions": ("fp16", "bf16"),
    }
    return MeasuredLayers.model_validate({**about, "blocks": tables[0], "ends": tables[1]})


def step_log(planned: Planned, shape: KernelShape, pair: tuple[float, float]) -> float:
    """Log seconds of a step with these log factors: cells that the prior does not pull to 0."""
    cells = (
        x * (1 + (CELL / hypot(p.common, p.own)) ** 2) for x, p in zip(pair, SPREADS, strict=True)
    )
    blocks, ends = cells
    return log(
        step_s(on(planned, measured_layers=used(planned, layers_of({shape: (blocks, ends)}))))
    )


class Tangent(NamedTuple):
    """A step's log of measured over modelled time, were all factors 1, and slopes in both."""

    shape: KernelShape
    log_ratio: float
    slopes: tuple[float, float]


def tangent(case: Case, logs: Logs) -> Tangent:
    """Near the log factors, where its shape has any."""
    assert case.plan is not None
    assert case.measured_s is not None
    shape = shape_of(case.plan)
    blocks, ends = logs.get(shape, (0.0, 0.0))
    here = step_log(case.plan, shape, (blocks, ends))
    moved = ((blocks + DIFFERENCE, ends), (blocks, ends + DIFFERENCE))
    slopes = [(step_log(case.plan, shape, pair) - here) / DIFFERENCE for pair in moved]
    ratio = log(case.measured_s) - here + slopes[0] * blocks + slopes[1] * ends
    return Tangent(shape, ratio, (slopes[0], slopes[1]))


def most_probable(tangents: Sequence[Tangent]) -> Logs:
    """Posterior means of the log factors of the steps' shapes."""
    at = [each.shape for each in tangents]
    slopes = np.array([each.slopes for each in tangents])
    steps = np.diag(np.full(len(at), NOISE**2))
    for k, spread in enumerate(SPREADS):
        steps += slopes[:, k, None] * prior(at, at, spread) * slopes[:, k]
    weights = np.linalg.solve(steps, np.array([each.log_ratio for each in tangents]))
    shapes = sorted(set(at))
    means = [prior(shapes, at, p) @ (slopes[:, k] * weights) for k, p in enumerate(SPREADS)]
    return {shape: (float(b), float(e)) for shape, b, e in zip(shapes, *means, strict=True)}


def linearised(cases: Sequence[Case]) -> list[Tangent]:
    """Of steps, near the factors that are most probable given all of them."""
    logs: Logs = {}
    tangents: list[Tangent] = []
    for _ in range(ROUNDS):
        tangents = [tangent(case, logs) for case in cases]
        logs = most_probable(tangents)
    return tangents


def used(planned: Planned, layers: MeasuredLayers | None) -> dict[Attention, MeasuredLayers]:
    """Measured layers with the attention of a plan; None: the curve alone."""
    flash = planned[0].workload.flash_attention
    attention: Attention = "fused_attention" if flash else "plain_attention"
    return {} if layers is None else {attention: layers}


def simulated(cases: Iterable[Case], layers: MeasuredLayers | None) -> Floats:
    """Predicted over measured time less 1, with these measured layers."""
    found: Floats = np.array(
        [
            step_s(on(case.plan, measured_layers=used(case.plan, layers))) / case.measured_s - 1
            for case in cases
            if case.plan is not None and case.measured_s is not None
        ]
    )
    return found


def recomputation(folder: Path) -> Iterator[dict[str, Any]]:
    """Of the one-node rows, how many are too fast to have repeated their forward passes."""
    runs = [vtrain(row) for row in rows_from(folder, "vTrain")]
    runs = [(case, run) for case, run in runs if case.kind == "one node"]
    for reached in REACHED:
        ideal = {"efficiency_maximum": reached, "efficiency_half_flops": 0.0, "measured_layers": {}}
        ideal |= {"launch_overhead_s": 0.0, "memory_latency_s": 0.0}
        counts = {
            way: sum(
                step_s(on(replace(run, recompute=way).planned(), **ideal)) > case.measured_s
                for case, run in runs
                if case.measured_s is not None
            )
            for way in ("none", "full")
        }
        yield {"share of the peak": reached, "rows": len(runs), **counts}


def line(kind: str, fitted: str, tested: str, times: str, errors: Floats) -> dict[str, Any]:
    """Errors by what was fitted to what."""
    sizes = np.abs(errors)
    return {
        "judged": kind,
        "fitted to": fitted,
        "tested on": tested,
        "times by": times,
        "rows": len(errors),
        "signed": float(errors.mean()),
        "mean": float(sizes.mean()),
        "p90": float(np.percentile(sizes, 90)),
    }


def held_out(
    steps: Sequence[Case], tangents: Sequence[Tangent], seed: int
) -> Iterator[dict[str, Any]]:
    """One half by the other, and each width, or tensor degree, by the others."""
    drawn = set(random.Random(seed).sample(range(len(steps)), len(steps) // 2))
    parts = [("same widths", "half", "other half", [i in drawn for i in range(len(steps))])]
    several = len({each.shape.width for each in tangents}) > 1
    kind, sizes = "another degree", [each.shape.tp for each in tangents]
    if several:
        kind, sizes = "another width", [each.shape.width for each in tangents]
    for size in sorted(set(sizes)):
        others = ", ".join(map(str, sorted({*sizes} - {size})))
        parts.append((kind, others, str(size), [each != size for each in sizes]))
    for kind, fitted, tested, kept in parts:
        layers = layers_of(most_probable([*compress(tangents, kept)]), DIGITS)
        test = [case for case, used in zip(steps, kept, strict=True) if not used]
        for times, cells in (("curve", None), ("cells", layers)):
            yield line(kind, fitted, tested, times, simulated(test, cells))


def judged(
    fit: Fit, cases: Sequence[Case], seed: int
) -> tuple[MeasuredLayers, list[dict[str, Any]]]:
    """What the catalogue is to hold of a GPU type, and the errors with and without."""
    steps = [
        case
        for case in cases
        if (case.source, case.kind) == fit[2:] and case.plan and case.plan[1].config.cp == 1
    ]
    tangents = linearised(steps)
    layers = layers_of(most_probable(tangents), DIGITS)
    lines = [*held_out(steps, tangents, seed)]
    lines.append(line("rows fitted", "all", "all", "cells", simulated(steps, layers)))
    for source in dict.fromkeys(case.source for case in cases):
        test = [case for case in cases if case.source == source and case not in steps]
        for times, cells in (("curve", None), ("cells", layers)) if test else ():
            lines.append(line("steps never fitted", "all", source, times, simulated(test, cells)))
    return layers, [{"gpu": fit.gpu, **each} for each in lines]


def main() -> None:
    """Runs the benchmark."""
    parser = command("layer_cells")
    parser.add_argument("--seed", type=int, default=0, help="of the rows drawn")
    chosen = parser.parse_args()
    folder = reference("measured/*.csv")
    every, lines, written = read(folder).cases, list[dict[str, Any]](), dict[str, Any]()
    for fit in FITS:
        cases = [
            case
            for case in every
            if case.plan
            and case.plan[0].cluster.groups[0].gpu.name == fit.gpu
            and not case.plan[0].workload.experts
            and case.plan[0].workload.flash_attention == (fit.attention == "fused_attention")
        ]
        layers, errors = judged(fit, cases, chosen.seed)
        written[fit.gpu] = {fit.attention: {"blocks": layers.blocks, "ends": layers.ends}}
        lines += errors
    ways = list(recomputation(folder))
    append(chosen.out, [record("layer_cells", {"errors": lines, "recomputation": ways})])
    table = new_table(TEXTS, ("rows", "signed %", "mean %", "p90 %"))
    for each in lines:
        figures = (f"{100 * each[name]:+.2f}" for name in ("signed", "mean", "p90"))
        table.add_row(*(each[name] for name in TEXTS), str(each["rows"]), *figures)
    console = wide_console()
    console.print(table)
    for way in ways:
        console.print(", ".join(f"{name} {value}" for name, value in way.items()))
    console.print(yaml.safe_dump(written, default_flow_style=None, width=100))


TEXTS = ("gpu", "judged", "fitted to", "tested on", "times by")
