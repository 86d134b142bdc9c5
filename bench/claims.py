"""A published finding as a study: plans of stored instances, their steps, and what must hold.

Every point is the plan that Megatron-LM would launch for a configuration, equal numbers of blocks
on every stage, simulated; it has no step if a GPU has too little memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bench.records import ROOT
from bench.runs import even_plan
from bench.searches import digest
from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance, Workload
from formulations.instance.load import load_instance
from formulations.plan import Configuration, Plan, num_gpus, uniform_degrees
from solver.simulate import step_time_ns

FOLDER = ROOT / "bench" / "findings"
#: One replica, one stage, plain 1F1B, full recomputation.
PLAIN: Mapping[str, Any] = {
    "tp": 1,
    "pp": 1,
    "micro_batch": 1,
    "schedule": "1f1b",
    "recompute": ("full",),
    "zero": 0,
}

#: Series -> place on its axis -> value; points that do not fit are left out.
Values = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Point:
    """One plan. changes: dotted path of a field of the instance -> value."""

    series: str
    label: str
    file: str
    config: Mapping[str, Any]
    changes: Mapping[str, Any] = field(default_factory=dict)

    def planned(self) -> tuple[Instance, Plan]:
        """The stored instance with the changes, and the plan on all its GPUs."""
        document = load_instance(FOLDER / f"{self.file}.yaml").model_dump()
        for path, value in self.changes.items():
            *parents, name = path.split(".")
            place: Any = document
            for parent in parents:
                place = place[int(parent)] if parent.isdigit() else place[parent]
            place[name] = value
        instance = Instance.model_validate(document)
        group, degrees = instance.cluster.groups[0], {**PLAIN, **self.config}
        gpus = group.nodes * group.gpus_per_node
        degrees["dp"] = gpus // (degrees["tp"] * degrees["pp"])
        own = {"degrees": uniform_degrees(instance, degrees.pop("tp"))}
        config = Configuration.model_validate(degrees | own | {"nodes_used": (group.nodes,)})
        return instance, even_plan(instance, config)


@dataclass(frozen=True)
class Outcome:
    """What a point comes to; step_s: None if it does not fit."""

    point: Point
    instance_sha256: str
    num_gpus: int
    sequences: int  #: per step
    flops: int
    memory_bytes: int  #: of the GPU that needs most
    step_s: float | None

    @property
    def teraflops(self) -> float | None:
        """TFLOP/s per GPU as Narayanan et al. 2021 count them."""
        return self.flops / self.num_gpus / self.step_s / 1e12 if self.step_s else None


def trained_flops(workload: Workload, recomputes: bool) -> int:
    """FLOPs of a step, Narayanan et al. 2021, appendix: blocks run forward twice if recomputed."""
    return workload.global_batch * sum(
        run.count * run.layer.forward_flops * (4 if run.layer.is_block and recomputes else 3)
        for run in workload.layer_runs
    )


def outcome(point: Point) -> Outcome:
    """The simulated step of a point."""
    instance, plan = point.planned()
    costs = plan_costs(instance, plan)
    fits = bool((costs.memory_bytes <= costs.limit_bytes).all())
    return Outcome(
        point=point,
        instance_sha256=digest(instance),
        num_gpus=num_gpus(instance, plan.config),
        sequences=instance.workload.global_batch,
        flops=trained_flops(instance.workload, plan.config.recompute == ("full",)),
        memory_bytes=int(costs.memory_bytes.max()),
        step_s=step_time_ns(costs) / 1e9 if fits else None,
    )


def by_series(outcomes: Sequence[Outcome], figure: Callable[[Outcome], float | None]) -> Values:
    """A figure of every point that fits."""
    values: Values = {}
    for one in outcomes:
        value = figure(one)
        if value is not None:
            values.setdefault(one.point.series, {})[one.point.label] = value
    return values


def throughput(outcomes: Sequence[Outcome]) -> Values:
    """TFLOP/s per GPU."""
    return by_series(outcomes, lambda one: one.teraflops)


def speed(outcomes: Sequence[Outcome]) -> Values:
    """Sequences per second."""
    return by_series(outcomes, lambda one: one.sequences / one.step_s if one.step_s else None)


def steps(outcomes: Sequence[Outcome]) -> Values:
    """Seconds per step."""
    return by_series(outcomes, lambda one: one.step_s)


@dataclass(frozen=True)
class Study:
    """One finding. figures: what is drawn; judge: which parts of it come out.

    note: where settings are ours, or why a part does not come out. fitted: was a setting that the
    source leaves open chosen because the finding comes out with it?
    """

    name: str
    claim: str
    source: str
    points: tuple[Point, ...]
    axis: str
    judge: Callable[[Values], dict[str, bool]]
    figures: Callable[[Sequence[Outcome]], Values] = throughput
    note: str = ""
    fitted: bool = False


def best(values: Mapping[str, float]) -> str:
    """Where the largest value is."""
    return max(values, key=values.__getitem__)


def falls(values: Mapping[str, float]) -> bool:
    """Whether every value is below the one before."""
    return all(a > b for a, b in pairwise(values.values()))
