"""From launch files to the plan that they start on the machines of an instance.

Machines stand in the order that the user says, that of the hosts file, or as listed.
"""

import re
from pathlib import Path

from formulations.errors import PlanError, PlannerError
from formulations.instance import Instance
from formulations.instance.documents import csv_rows, read_text
from formulations.plan import Plan
from solver.evaluate import megatron_run, torchtitan_run
from solver.evaluate.launched import run_of_degrees
from solver.evaluate.megatron_run import read_flags
from solver.evaluate.run_plan import Planned, planned
from solver.export.job import APART, HOSTS, RANKS, Job, host_names, name_clash

ALLOWED = "one of --megatron FILE, --torchtitan DIR, --degrees NAME=VALUE,..."


def read_run(
    instance: Instance,
    arguments: Path | None = None,
    configuration: Path | None = None,
    stated: str | None = None,
    order: str | None = None,
) -> Planned:
    """The plan that one of the three describes; order: of the hosts, where it is stated.

    Raises PlanError, with file and line, for what cannot be launched there.
    """
    if sum(source is not None for source in (arguments, configuration, stated)) != 1:
        raise PlannerError(ALLOWED)
    folder: Path | None = None
    if arguments is not None:
        text = read_text(arguments, "a file with arguments of Megatron-LM")
        run = megatron_run.launched(read_flags(text, str(arguments)), instance)
        folder = arguments.parent
    elif configuration is not None:
        run, folder = torchtitan_run.launched(configuration, instance), configuration
    else:
        run = run_of_degrees(stated or "", instance)
    if order is not None:
        return planned(instance, run, named_order(instance, order))
    if folder is None:
        return planned(instance, run, tuple(instance.cluster.node_groups))
    launched_plan = planned(instance, run, order_beside(instance, folder))
    check_ranks_beside(launched_plan.instance, launched_plan.plan, folder)
    return launched_plan


OPTION = "--order"
#: Of a rank, what the order of equal machines does not change.
_COLUMNS = ("rank", "gpu", "gpu_type", "tensor", "data", "stage")


def named_order(instance: Instance, text: str) -> tuple[int, ...]:
    """Node groups by name, with commas between them: `small,big,small*2`."""
    numbers = {group.name: j for j, group in enumerate(instance.cluster.groups)}
    order: list[int] = []
    for part in text.split(","):
        run = re.fullmatch(r"\s*(.*?)\s*(?:\*\s*([1-9]\d{0,5}))?\s*", part)
        name = "" if run is None else run[1]
        if run is None or name not in numbers:
            allowed = f"{', '.join(numbers)}, and NAME*N for several"
            raise PlanError(OPTION, f"the node group {name!r}", allowed)
        order += [numbers[name]] * int(run[2] or 1)
        _check_number(instance, order, OPTION)
    return tuple(order)


def _check_number(instance: Instance, order: list[int], where: str) -> None:
    group = instance.cluster.groups[order[-1]]
    if order.count(order[-1]) > group.nodes:
        raise PlanError(where, f"{order.count(order[-1])} nodes of {group.name}", f"{group.nodes}")


def order_beside(instance: Instance, folder: Path) -> tuple[int, ...]:
    """The order of the hosts file in a folder, if it has one; else that of the instance.

    Raises PlanError for a host that is no node of the instance, or might be another one.
    """
    path, groups = folder / HOSTS, instance.cluster.node_groups
    if not path.is_file():
        return tuple(groups)
    if clash := name_clash(instance.cluster):
        raise PlanError(str(path), clash, f"{APART}, or {OPTION} with node groups")
    nodes = zip(host_names(instance.cluster), groups, strict=True)
    numbers = {name: j for machines, j in nodes for name in machines}
    order: list[int] = []
    missing = 0  # machines of the last node
    for line, name in enumerate(read_text(path, "names of hosts").splitlines(), 1):
        if not name.strip():
            continue
        if name.strip() not in numbers:
            allowed = f"{', '.join(list(numbers)[:3])}, ..., or {OPTION} with node groups"
            raise PlanError(f"{path}:{line}", f"the host {name.strip()}", allowed)
        j = numbers[name.strip()]
        group = instance.cluster.groups[order[-1] if missing else j]
        if missing and j != order[-1]:
            allowed = f"a host of {group.name}, of which {group.machines} follow each other"
            raise PlanError(f"{path}:{line}", f"the host {name.strip()}", allowed)
        if not missing:
            order.append(j)
            _check_number(instance, order, f"{path}:{line}")
        missing = (missing or group.machines) - 1
    if missing:
        allowed = f"{missing} more of {group.name}, whose nodes are joined"
        raise PlanError(str(path), f"{name.strip()} as the last host", allowed)
    if not order:
        raise PlanError(str(path), "no host", "one host a line")
    return tuple(order)


def check_ranks_beside(instance: Instance, plan: Plan, folder: Path) -> None:
    """Raises PlanError where a rank table in the folder starts other ranks than the plan has."""
    path = folder / RANKS
    if not path.is_file():
        return
    names, *table = csv_rows(path, "a table of ranks") or [[]]
    rows = [dict(zip(names, row, strict=False)) for row in table]
    ranks = Job(instance, plan).ranks
    for line, (row, rank) in enumerate(zip(rows, ranks, strict=False), 2):
        for name in _COLUMNS:
            planned = str(getattr(rank, name))
            if row.get(name) != planned:
                problem = f"{name} {row.get(name)} of rank {rank.rank}"
                allowed = f"{planned}, with these degrees and hosts"
                raise PlanError(f"{path}:{line}", problem, allowed)
    if len(rows) != len(ranks):
        allowed = f"{len(ranks)}, the GPUs of the hosts"
        raise PlanError(str(path), f"{len(rows)} ranks", allowed)
