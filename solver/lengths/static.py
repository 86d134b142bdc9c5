"""The step of one strategy that the user names, as published systems compare with.

HotSPa's 1.96 and 1.50 are against (dp 1, tp 16, pp 2), the one strategy of Megatron-LM that has
memory for its longest sequences (SOSP 2024, table 3). Its tensor groups fill two nodes of 8.
"""

import re
from math import lcm

from formulations.errors import NoPlanError, PlannerError
from formulations.instance import Instance
from formulations.instance.cluster import Cluster
from formulations.instance.record import MOST_GPUS_PER_NODE
from formulations.lengths.tour import best_single
from solver.lengths.candidates import candidates

_FIELDS = {
    "dp": "data_parallel",
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "zero": "zero",
}
ALLOWED = f"NAME=NUMBER of {', '.join(_FIELDS)}, with commas between; such as dp=1,tp=16,pp=2"


def static_step(instance: Instance, text: str) -> tuple[str, int]:
    """Name and step, in ns, of the best plan of a strategy such as dp=1,tp=16,pp=2, alone.

    The instance says the rest; the plan is the fastest of its degrees that takes all sequences.

    Tensor groups of several nodes take whole ones, where all links between nodes are alike. Raises
    PlannerError for another text, NoPlanError where the strategy has no plan for the sequences.
    """
    degrees = dict[str, int]()
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        written = "[0-3]" if name == "zero" else r"[1-9]\d{0,5}"
        if name not in _FIELDS or name in degrees or not re.fullmatch(written, number):
            raise PlannerError(f"--static: {part.strip()!r}; allowed: {ALLOWED}")
        degrees[name] = int(number)
    search = {_FIELDS[name]: (number,) for name, number in degrees.items()}
    wide = instance.but(cluster=_wide_nodes(instance, degrees))
    try:
        listed = candidates(wide.but(search=search)).mixed
    except NoPlanError as error:
        raise NoPlanError(f"--static {text}: {error}") from None
    single = best_single(listed)
    if single is None:
        raise NoPlanError(f"--static {text}: no plan takes all sequences alone")
    return listed.strategies[single.strategy].name, single.step_ns


def _wide_nodes(instance: Instance, degrees: dict[str, int]) -> Cluster:
    """The cluster, its nodes joined so that each has the GPUs of a sequence."""
    cluster, gpus = instance.cluster, degrees.get("tp", 1) * degrees.get("cp", 1)
    joined = lcm(*(-(-gpus // group.gpus_per_node) for group in cluster.groups))
    if joined == 1:
        return cluster
    links = {group.inter_node for group in cluster.groups}
    beyond = len(links) > 1 or gpus > MOST_GPUS_PER_NODE
    for group in cluster.groups:
        if beyond or gpus % group.gpus_per_node or group.nodes % joined or group.spot:
            raise PlannerError(
                f"--static: {gpus} GPUs of a sequence, {group.gpus_per_node} in a node of "
                f"{group.name}; allowed: up to as many, or up to {MOST_GPUS_PER_NODE} of whole "
                "nodes, where all have equal links and no spot terms"
            )
    return cluster.joined(joined)
