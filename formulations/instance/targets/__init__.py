"""Launch targets: what each framework can run, said once, a module for each.

Whoever adds a decision to `search` adds its rules there: what a user states is checked by them,
what he does not state is narrowed by them, and plans are held against them. DeepSpeed and
Accelerate are no targets of a search: they take what they can of the others' plans.
"""

from typing import Literal

from formulations.instance.targets.accelerate import ACCELERATE
from formulations.instance.targets.deepspeed import DEEPSPEED
from formulations.instance.targets.flagscale import FLAGSCALE
from formulations.instance.targets.launcher import Launcher
from formulations.instance.targets.megatron import MEGATRON
from formulations.instance.targets.torchtitan import TORCHTITAN

#: Who is to run the plans of a search; `any` has no rules, so it is the widest.
Target = Literal["megatron", "flagscale", "torchtitan", "any"]
TARGETS: dict[Target, Launcher] = {
    "megatron": MEGATRON,
    "flagscale": FLAGSCALE,
    "torchtitan": TORCHTITAN,
    "any": Launcher("any target"),
}
#: Who can be asked to run a plan.
LAUNCHERS: dict[str, Launcher] = {str(name): launcher for name, launcher in TARGETS.items()}
LAUNCHERS |= {"deepspeed": DEEPSPEED, "accelerate": ACCELERATE}


def launchers(field: str, value: object) -> list[Target]:
    """The targets that can run a value of a field of `search`; `any` is the last."""
    return [name for name, target in TARGETS.items() if target.allows(field, value)]


def trainers(field: str, value: object) -> list[Target]:
    """The targets that can train a workload with a value of a field; `any` is the last."""
    return [name for name, target in TARGETS.items() if target.trains(field, value)]


__all__ = ["LAUNCHERS", "TARGETS", "Target", "launchers", "trainers"]
