"""What only steps show of Megatron-Bridge, fitted to one half of its rows and judged on the other.

    python -m bench overlap [--out RECORDS]

No source measures alone which share of traffic NVIDIA's recipes hide, of tensor groups and of GPUs
that share experts, or by which factor GB300's kernels are faster than those of GB200, whose figures
it would have. Dense models decide tensor share and factor, models with experts the other share: of
a grid, what has the least mean |error| on every second row in the order of the folder. The other
rows judge. The catalogue has the result under `megatron-bridge` (overlap.yaml) and GB300
(gpus.yaml; `bench.calibrate.FASTER`).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from bench.calibrate import ATTENTION, FASTER, GROUPED, MAXIMUM
from bench.command import command, new_table, wide_console
from bench.evidence import read
from bench.records import append, record, reference
from bench.runs import Case, step_s
from formulations.instance import Instance

SOURCE = "Megatron-Bridge"
SHARES, FACTORS = (0.0, 0.25, 0.5, 0.75), (1.0, 1.1, 1.2, 1.3, 1.4)
GPU = "GB300"
MAXIMA = (MAXIMUM, ATTENTION, GROUPED)


class Shown(NamedTuple):
    """Shares that are hidden, and GB300's maxima over those of GB200."""

    tensor: float = 0.0
    experts: float = 0.0
    factor: float = 1.0


def error(case: Case, shown: Shown) -> float:
    """Predicted over measured step, minus 1."""
    assert case.plan is not None
    assert case.measured_s is not None
    instance, plan = case.plan
    return step_s((_with(instance, shown), plan)) / case.measured_s - 1


def _with(instance: Instance, shown: Shown) -> Instance:
    shares = {"tensor_parallel": shown.tensor, "expert_parallel": shown.experts}
    instance = instance.but(search={"overlap": instance.search.overlap.model_copy(update=shares)})
    groups = []
    for group in instance.cluster.groups:
        gpu, times = group.gpu, shown.factor / FASTER[GPU]
        if gpu.name == GPU:
            maxima = {name: times * getattr(gpu, name) for name in MAXIMA}
            group = group.model_copy(update={"gpu": gpu.model_copy(update=maxima)})
        groups.append(group)
    return instance.model_copy(update={"cluster": instance.cluster.with_groups(groups)})


def size(cases: Iterable[Case], shown: Shown) -> float:
    """Mean |error|."""
    return fmean(abs(error(case, shown)) for case in cases)


def fitted(dense: Sequence[Case], experts: Sequence[Case]) -> Shown:
    """What has the least mean |error| on these rows."""
    grid = (Shown(tensor, 0.0, factor) for tensor, factor in product(SHARES, FACTORS))
    shown = min(grid, key=lambda each: size(dense, each))
    with_experts = (shown._replace(experts=share) for share in SHARES)
    return min(with_experts, key=lambda each: size(experts, each))


def main() -> None:
    """Runs the benchmark."""
    chosen = command("overlap").parse_args()
    cases = [case for case in read(reference()).cases if case.source == SOURCE and case.plan]
    halves = (cases[::2], cases[1::2])
    kinds: dict[str, Callable[[Case], bool]] = {
        "dense": lambda case: case.kind == "dense",
        "experts": lambda case: case.kind == "experts",
    }
    shown = fitted(*(list(filter(of_kind, halves[0])) for of_kind in kinds.values()))
    lines: list[dict[str, Any]] = []
    for (kind, of_kind), (half, rows) in product(
        kinds.items(), zip(("fitted", "judged"), halves, strict=True)
    ):
        members = list(filter(of_kind, rows))
        figures = {"nothing hidden": size(members, Shown()), "as fitted": size(members, shown)}
        lines.append({"kind": kind, "half": half, "rows": len(members)} | figures)
    append(chosen.out, [record("overlap", {"shown": shown._asdict(), "lines": lines})])
    table = new_table(("kind", "half"), ("rows", "nothing hidden %", "as fitted %"))
    for line in lines:
        shares = (f"{100 * line[name]:.1f}" for name in ("nothing hidden", "as fitted"))
        table.add_row(line["kind"], line["half"], str(line["rows"]), *shares)
    wide_console().print(table)
    wide_console().print(
        f"hidden: {shown.tensor:.0%} of tensor-parallel traffic, {shown.experts:.0%} of experts'; "
        f"{GPU} {shown.factor:g} times as fast as its twin"
    )
