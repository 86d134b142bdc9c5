"""What a launch target cannot express of a plan, and what to change."""

from collections.abc import Iterator
from typing import NamedTuple

from formulations.instance.target import TARGET_NAMES, Target
from formulations.launch import obstacles
from solver.export.job import Job, chain_fault, order_fault


class Fault(NamedTuple):
    """What stands in the way, and what to write instead."""

    found: str
    change: str


def launch_faults(job: Job, target: Target) -> Iterator[Fault]:
    """What every exporter of a launch target refuses: by its rules, and by the chain of layers."""
    for obstacle in obstacles(job.instance, job.plan, target):
        yield Fault(obstacle.found(target), f"search.target: {target}, and solve again")
    yield from chain_faults(job, TARGET_NAMES[target])


def chain_faults(job: Job, name: str) -> Iterator[Fault]:
    """Layers or hosts that no launcher can lay out."""
    if chain := chain_fault(job):
        yield Fault(f"{chain}: not for {name}", "a model of one stack of blocks")
    if order := order_fault(job):
        yield Fault(order, "a plan that verify accepts")
