"""What a launch target cannot express of a plan, and what to change."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from formulations.instance.target import Rule, Target, trained
from formulations.launch import decisions, obstacles
from solver.export.job import APART, Job, name_clash, order_fault


class Fault(NamedTuple):
    """What stands in the way, and what to write instead."""

    found: str
    change: str


def launch_faults(job: Job, target: Target) -> Iterator[Fault]:
    """What the exporter of a launch target refuses: all that a search for it does not choose."""
    for obstacle in obstacles(job.instance, job.plan, target):
        yield Fault(obstacle.found(target), obstacle.change(target))
    yield from order_faults(job)


def order_faults(job: Job) -> Iterator[Fault]:
    """Hosts that no launcher can lay out."""
    if clash := name_clash(job.instance.cluster):
        yield Fault(clash, f"{APART}, and solve again")
    elif order := order_fault(job):
        yield Fault(order, "a plan that verify accepts")


def rule_faults(job: Job, name: str, rules: Mapping[str, Rule]) -> Iterator[Fault]:
    """What a framework that is no target of searches refuses, by rules of its own."""
    fixed = {field: [value] for field, value in trained(job.instance.workload).items()}
    for field, values in {**decisions(job.instance, job.plan), **fixed}.items():
        for value in values:
            if field in rules and value not in (None, *rules[field].allowed):
                allowed = " or ".join(map(str, rules[field].allowed))
                found = f"{field}: {value} is not for {name}, {rules[field].reason}"
                section = "workload" if field in fixed else "search"
                yield Fault(found, f"{section}.{field}: {allowed}, and solve again")
    yield from order_faults(job)
