"""From launch files to the plan that they start on the machines of an instance."""

from pathlib import Path

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.instance.documents import read_text
from solver.evaluate import degrees, megatron_run, torchtitan_run
from solver.evaluate.flags import read_flags
from solver.evaluate.hosts import check_ranks_beside, named_order, order_beside
from solver.evaluate.launched import Launched
from solver.evaluate.run_plan import Planned, planned

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
    if sum(one is not None for one in (arguments, configuration, stated)) != 1:
        raise PlannerError(ALLOWED)
    folder: Path | None = None
    if arguments is not None:
        run, folder = _megatron(arguments, instance), arguments.parent
    elif configuration is not None:
        run, folder = torchtitan_run.launched(configuration, instance), configuration
    else:
        run = degrees.launched(stated or "", instance)
    if order is not None:
        return planned(instance, run, named_order(instance, order))
    if folder is None:
        return planned(instance, run, tuple(instance.cluster.node_groups))
    own = planned(instance, run, order_beside(instance, folder))
    check_ranks_beside(own.instance, own.plan, folder)
    return own


def _megatron(path: Path, instance: Instance) -> Launched:
    text = read_text(path, "a file with arguments of Megatron-LM")
    return megatron_run.launched(read_flags(text, str(path)), instance)
