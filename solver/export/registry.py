"""All launch targets of `export`, and the way from a plan to their files."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.plan import Plan
from solver.export import (
    accelerate,
    deepspeed,
    flagscale,
    megatron,
    megatron_bridge,
    torchtitan,
)
from solver.export.job import Fault, Job
from solver.options import ExportTarget


@dataclass(frozen=True)
class Exporter:
    """One target: what it cannot express, its files by name, and the check of what was written.

    check: raises PlannerError where the files, read back, do not sum to the plan.
    """

    name: str
    faults: Callable[[Job], Iterator[Fault]]
    files: Callable[[Job], dict[str, str]]
    check: Callable[[Job, Mapping[str, str]], None]


def _exporter(module: ModuleType) -> Exporter:
    """The target that a module is for."""
    return Exporter(module.NAME, module.faults, module.files, module.check)


EXPORTERS: dict[ExportTarget, Exporter] = {
    "megatron": _exporter(megatron),
    "megatron-bridge": _exporter(megatron_bridge),
    "flagscale": _exporter(flagscale),
    "torchtitan": _exporter(torchtitan),
    "deepspeed": _exporter(deepspeed),
    "accelerate": _exporter(accelerate),
}


def exported(
    instance: Instance, plan: Plan, target: ExportTarget, where: str
) -> tuple[dict[str, str], Callable[[Mapping[str, str]], None]]:
    """The files of a plan for a target, and the check to run on them when they are written.

    Raises PlanError, with what to change or who can, for a plan that the target cannot express;
    `where` names the plan file in it.
    """
    job, exporter = Job(instance.on(plan.shape.nodes_used), plan), EXPORTERS[target]
    fault = next(exporter.faults(job), None)
    if fault is not None:
        able = [name for name, one in EXPORTERS.items() if next(one.faults(job), None) is None]
        others = f", or --to {' or '.join(able)}" if able else ""
        raise PlanError(where, fault.found, f"{fault.change}{others}")
    return exporter.files(job), lambda texts: exporter.check(job, texts)
