"""What a launch target cannot express of a plan, and what to change."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from formulations.instance.target import TARGET_NAMES, Rule, Target
from formulations.launch import decisions, obstacles
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
    if chain := chain_fault(job.instance):
        yield Fault(f"{chain}: not for {name}", "a model of one stack of blocks")
    if order := order_fault(job):
        yield Fault(order, "a plan that verify accepts")


def rule_faults(job: Job, name: str, rules: Mapping[str, Rule]) -> Iterator[Fault]:
    """What a framework that is no target of searches refuses, by rules of its own."""
    for field, values in decisions(job.instance, job.plan).items():
        for value in values:
            if field in rules and value not in rules[field].allowed:
                allowed = " or ".join(map(str, rules[field].allowed))
                found = f"{field}: {value} is not for {name}, {rules[field].reason}"
                yield Fault(found, f"search.{field}: {allowed}, and solve again")
