"""All launch targets of `export`, and the way from a plan to their files."""

from collections.abc import Callable
from dataclasses import dataclass

from formulations.errors import Fault, PlanError
from formulations.instance import Instance
from formulations.plan import Plan
from formulations.space.launch import model_obstacles, obstacles
from solver.export import flagscale, huggingface, megatron, megatron_bridge, torchtitan
from solver.export.job import APART, Job, name_clash
from solver.options import ExportTarget


@dataclass(frozen=True)
class Exporter:
    """A framework; launcher: whose rules say what it can express, files: by name, of a job.

    builds: what it cannot build of a job's model, beside those rules.
    """

    name: str
    launcher: str
    files: Callable[[Job], dict[str, str]]
    builds: Callable[[Job], list[Fault]] = lambda job: []

    def faults(self, job: Job) -> list[Fault]:
        """What it cannot express, of a plan whose ranks lie host by host, as `verify` has it."""
        clash = name_clash(job.instance.cluster)
        return [
            *obstacles(job.instance, job.plan, self.launcher),
            *model_obstacles(job.instance, self.launcher),
            *self.builds(job),
            *([Fault(clash, f"{APART}, and solve again")] if clash else []),
        ]


EXPORTERS: dict[ExportTarget, Exporter] = {
    "megatron": Exporter("Megatron-LM", "megatron", megatron.files),
    "megatron-bridge": Exporter("Megatron-Bridge", "megatron", megatron_bridge.files),
    "flagscale": Exporter("FlagScale", "flagscale", flagscale.files),
    "torchtitan": Exporter("torchtitan", "torchtitan", torchtitan.files),
    "deepspeed": Exporter(
        "DeepSpeed", "deepspeed", huggingface.deepspeed_files, huggingface.deepspeed_faults
    ),
    "accelerate": Exporter(
        "Accelerate", "accelerate", huggingface.accelerate_files, huggingface.accelerate_faults
    ),
}


def exported(
    instance: Instance, plan: Plan, target: ExportTarget, where: str, own_model: bool = False
) -> dict[str, str]:
    """The files of a plan for a target.

    Raises PlanError, with what to change or who can, for a plan that the target cannot express;
    `where` names the plan file in it. own_model: is the model the user's, and not written?
    """
    job, exporter = Job(instance.on(plan.config.nodes_used), plan), EXPORTERS[target]
    job = job.with_own_model if own_model else job
    for fault in exporter.faults(job):
        able: list[str] = [name for name, rival in EXPORTERS.items() if not rival.faults(job)]
        able = able or [
            f"{name} --own-model"
            for name, rival in EXPORTERS.items()
            if name != target and not rival.faults(job.with_own_model)
        ]
        others = f", or --to {' or '.join(able)}" if able else ""
        raise PlanError(where, fault.found, f"{fault.allowed}{others}")
    return exporter.files(job)
