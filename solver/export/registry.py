"""All launch targets of `export`, and the way from a plan to their files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.plan import Plan
from formulations.space.launch import Obstacle, model_obstacles, obstacles
from solver.export import accelerate, deepspeed, flagscale, megatron, megatron_bridge, torchtitan
from solver.export.job import Job, host_faults
from solver.export.launcher import check_launcher
from solver.options import ExportTarget


@dataclass(frozen=True)
class Exporter:
    """What writes files for a framework; launcher: whose rules say what it can express."""

    name: str
    launcher: str
    module: ModuleType

    def faults(self, job: Job) -> list[Obstacle]:
        """What it cannot express."""
        return [
            *obstacles(job.instance, job.plan, self.launcher),
            *model_obstacles(job.instance, self.launcher),
            *host_faults(job),
        ]

    def files(self, job: Job) -> dict[str, str]:
        """All files of the export, by name."""
        texts: dict[str, str] = self.module.files(job)
        return texts

    def check(self, job: Job, texts: Mapping[str, str]) -> None:
        """Raises PlannerError unless the files, read back, say what the plan does."""
        check_launcher(job, texts)
        self.module.check(job, texts)


EXPORTERS: dict[ExportTarget, Exporter] = {
    "megatron": Exporter("Megatron-LM", "megatron", megatron),
    "megatron-bridge": Exporter("Megatron-Bridge", "megatron", megatron_bridge),
    "flagscale": Exporter("FlagScale", "flagscale", flagscale),
    "torchtitan": Exporter("torchtitan", "torchtitan", torchtitan),
    "deepspeed": Exporter("DeepSpeed", "deepspeed", deepspeed),
    "accelerate": Exporter("Accelerate", "accelerate", accelerate),
}


def exported(
    instance: Instance, plan: Plan, target: ExportTarget, where: str, own_model: bool = False
) -> tuple[dict[str, str], Callable[[Mapping[str, str]], None]]:
    """The files of a plan for a target, and the check to run on them when they are written.

    Raises PlanError, with what to change or who can, for a plan that the target cannot express;
    `where` names the plan file in it. own_model: is the model the user's, and not written?
    """
    job, exporter = Job(instance.on(plan.config.nodes_used), plan), EXPORTERS[target]
    job = job.with_own_model if own_model else job
    for fault in exporter.faults(job):
        able = [name for name, rival in EXPORTERS.items() if not rival.faults(job)]
        others = f", or --to {' or '.join(able)}" if able else ""
        raise PlanError(where, fault.found, f"{fault.change}{others}")
    return exporter.files(job), lambda texts: exporter.check(job, texts)
