"""A measured step as a plan of ours, and its time with corrected layer times.

The plan is Megatron-LM's of the degrees: equally many blocks on every chunk, ranks in node order,
on nodes of one group alone. `corrected` multiplies the times of blocks by one factor, those of
embedding and head (the ends) by another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from typing import Any, NamedTuple

from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.instance.calibration import Calibration, Correction
from formulations.plan import Plan, Shape
from solver.heuristics.baselines import equal_blocks
from solver.simulate import step_time_ns


class Kernels(NamedTuple):
    """What decides the sizes of a layer's kernels, in a model of one width."""

    gpu: str
    tp: int
    micro_batch: int


class Factors(NamedTuple):
    """Logarithms of what times of blocks, and of embedding and head, are multiplied by."""

    blocks: float
    ends: float


def corrections(instance: Instance, kernels: Kernels, factors: Factors) -> list[Correction]:
    """One per layer kind of the instance."""
    layers = {run.layer.kind: run.layer.is_block for run in instance.workload.layer_runs}
    return [
        Correction(
            kind=kind,
            gpu=kernels.gpu,
            tp=kernels.tp,
            micro_batch=kernels.micro_batch,
            factor=exp(factors.blocks if is_block else factors.ends),
        )
        for kind, is_block in layers.items()
    ]


@dataclass(frozen=True)
class MeasuredStep:
    """A plan and how long its step took."""

    instance: Instance
    plan: Plan
    measured_s: float

    @property
    def kernels(self) -> Kernels:
        """Whose factors decide its time."""
        gpu = self.instance.cluster.groups[0].gpu.name
        shape = self.plan.shape
        return Kernels(gpu, shape.degrees[0].tp, shape.degrees[0].sequences(shape.micro_batch))

    def predicted_s(self, factors: Factors | None = None) -> float:
        """Step time, as modelled or corrected."""
        calibration = None
        if factors is not None:
            found = corrections(self.instance, self.kernels, factors)
            calibration = Calibration(source="measured steps", corrections=tuple(found))
        corrected = self.instance.but(calibration=calibration)
        return step_time_ns(plan_costs(corrected, self.plan)) / 1e9

    @cached_property
    def log_s(self) -> float:
        """Logarithm of the measured time."""
        return log(self.measured_s)

    @cached_property
    def costs(self) -> PlanCosts:
        """As modelled."""
        return plan_costs(self.instance, self.plan)

    @property
    def peak_bytes(self) -> int:
        """Of the fullest GPU, as modelled."""
        return int(self.costs.memory_bytes.max())


def megatron_plan(instance: Instance, fields: Mapping[str, Any]) -> Plan | None:
    """Megatron-LM's plan of these fields of a shape on the first node group.

    None where its blocks or micro-batches do not divide.
    """
    shape = Shape.model_validate(fields)
    tables = build_tables(instance, shape)
    split = equal_blocks(tables)
    each, left_over = divmod(tables.num_micro_batches, shape.dp)
    if split is None or left_over or not each:
        return None
    return Decisions((0,) * sum(shape.nodes_used), split, (each,) * shape.dp).plan(tables)
