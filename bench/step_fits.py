"""What only steps show of hardware and software, fitted to half of the rows, judged by the others.

    python -m bench step_fits [--out RECORDS]

No source measures these alone, so of a grid that value counts which has the least mean |error| on
every second row of a source, in the order of the folder. The catalogue has the results.
- Dense models of Megatron-Bridge: the share of tensor-parallel traffic that NVIDIA's recipes hide
  (overlap.yaml), and by which factor GB300's maxima are above those of B200 (`calibrate.FASTER`).
- Models with experts: the share of traffic between these that is hidden.
- GPT-2 on 16 T4 (AMP): the share of its peak that a T4 reaches (`calibrate.BY_STEPS`), which is low
  as 70 W allow no more, and what a launch takes on these hosts with DeepSpeed's pipeline of 2020
  (`gpt_rows.AMP_LAUNCH_S`).
"""

from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from bench.calibrate import ATTENTION, BY_STEPS, FASTER, GROUPED, LAUNCH, MAXIMUM
from bench.command import command, new_table, wide_console
from bench.evidence import read
from bench.gpt_rows import AMP_LAUNCH_S
from bench.records import append, record, reference
from bench.runs import Case, step_s, with_gpus
from formulations.instance import GpuType, Instance

#: A row's instance with these values.
Apply = Callable[[Instance, Sequence[float]], Instance]
SHARES, FACTORS = (0.0, 0.25, 0.5, 0.75), (1.0, 1.1, 1.2, 1.3, 1.4)
MAXIMA_OF_T4, LAUNCHES_S = (0.15, 0.2, 0.25, 0.3), (140e-6, 180e-6, 220e-6)


def dense(instance: Instance, values: Sequence[float]) -> Instance:
    """values: hidden share of tensor-parallel traffic, GB300's maxima over B200's."""

    def faster(gpu: GpuType) -> GpuType:
        times = values[1] / FASTER[gpu.name] if gpu.name in FASTER else 1.0
        maxima = {name: times * getattr(gpu, name) for name in (MAXIMUM, ATTENTION, GROUPED)}
        return gpu.model_copy(update=maxima)

    return _hiding(with_gpus(instance, faster), tensor_parallel=values[0])


def experts(instance: Instance, values: Sequence[float]) -> Instance:
    """values: hidden share of traffic between GPUs that share experts."""
    return _hiding(instance, expert_parallel=values[0])


def old(instance: Instance, values: Sequence[float]) -> Instance:
    """values: T4's maximum, seconds of a launch."""
    figures = dict(zip((MAXIMUM, LAUNCH), values, strict=True))
    return with_gpus(instance, lambda gpu: gpu.model_copy(update=figures))


def _hiding(instance: Instance, **shares: float) -> Instance:
    return instance.but(search={"overlap": instance.search.overlap.model_copy(update=shares)})


#: Source, kind, names of values, what they were before, their grid, and what they do.
FITS: tuple[tuple[str, str, str, Sequence[float], Sequence[Sequence[float]], Apply], ...] = (
    ("Megatron-Bridge", "dense", "tensor share, GB300", (0.0, 1.0), (SHARES, FACTORS), dense),
    ("Megatron-Bridge", "experts", "expert share", (0.0,), (SHARES,), experts),
    ("AMP", "16 T4", "maximum, launch s", (0.686, 82.1e-6), (MAXIMA_OF_T4, LAUNCHES_S), old),
)
#: What the catalogue and the rows have.
TAKEN: dict[Apply, Sequence[float]] = {
    dense: (0.75, FASTER["GB300"]),
    experts: (0.75,),
    old: (BY_STEPS["T4"], AMP_LAUNCH_S),
}


def size(cases: Sequence[Case], apply: Apply, values: Sequence[float]) -> float:
    """Mean |error| of steps with these values."""
    return fmean(
        abs(step_s((apply(case.plan[0], values), case.plan[1])) / case.measured_s - 1)
        for case in cases
        if case.plan is not None and case.measured_s is not None
    )


def fits(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A line per question: values, and mean |error| before and with them of both halves."""
    lines = []
    for source, kind, names, before, grid, apply in FITS:
        rows = [case for case in cases if case.source == source and case.plan is not None]
        halves = [[case for case in half if case.kind == kind] for half in (rows[::2], rows[1::2])]
        values = min(product(*grid), key=lambda each: size(halves[0], apply, each))
        line: dict[str, Any] = {"source": source, "kind": kind, "names": names, "values": values}
        for name, half in zip(("fitted", "judged"), halves, strict=True):
            line[name] = {"rows": len(half), "before": size(half, apply, before)}
            line[name]["with"] = size(half, apply, values)
        lines.append(line | {"taken": TAKEN[apply]})
    return lines


def main() -> None:
    """Runs the benchmark."""
    chosen = command("step_fits").parse_args()
    lines = fits(read(reference()).cases)
    append(chosen.out, [record("step_fits", {"lines": lines})])
    columns = ("value", "taken", "rows", "before %", "fitted %", "rows", "before %", "judged %")
    table = new_table(("source", "kind", "what"), columns)
    for line in lines:
        values = (", ".join(f"{value:g}" for value in line[name]) for name in ("values", "taken"))
        halves = (line[name] for name in ("fitted", "judged"))
        errors = [
            text
            for half in halves
            for text in (
                str(half["rows"]),
                *(f"{100 * half[name]:.1f}" for name in ("before", "with")),
            )
        ]
        table.add_row(line["source"], line["kind"], line["names"], *values, *errors)
    wide_console().print(table)
