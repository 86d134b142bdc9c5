"""FASOP's published plans as plans of ours, and what the simulator says of them.

plans.json of the reference (FASOP, HPDC 2024, public code) has, per cluster and model, the best
five plans of its search, and the best five within its own memory estimate. A plan is a node order,
degrees, micro-batch size and numbers of layers; ranks are laid out as in Megatron-LM. It recomputes
nothing, shards no optimizer, uses all nodes, and schedules 1F1B.
"""

import json
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.instance.search import RECOMPUTE_WAYS
from formulations.plan import Configuration, Plan, uniform_degrees
from formulations.space import configs
from formulations.units import GIB
from solver.simulate import step_time_ns

#: Name in plans.json: our instance of the same cluster, model and profile.
CASES = {
    "bert_homo": "homo_small",
    "bert_hetero": "hetero_small",
    "gpt2XL_homo": "homo_large_gpt2xl",
    "gpt2XL_hetero": "hetero_large_gpt2xl",
}
#: Its node types by our node groups.
GROUPS = {"A100 node": "a100", "A10 node": "a10"}


@dataclass(frozen=True)
class Judgement:
    """A plan by our simulator, all transfers between stages charged.

    outside: why no plan of the instance's plan space is like this; empty if it is one.
    """

    config: Configuration
    partition: tuple[int, ...]
    step_time_ns: int
    outside: tuple[str, ...]


def read_published(reference: Path, case: str) -> tuple[dict[str, Any], ...]:
    """Different plans of a case as they stand there; InstanceError without the reference file."""
    path = reference / "fasop" / "plans.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))[case]
    except OSError as error:
        allowed = "the reference folder, named by HETPLAN_REFERENCE"
        raise InstanceError(str(path), str(error.strerror), allowed) from None
    plans = {json.dumps(plan): plan for plan in [*found["best5_within_memory"], *found["best5"]]}
    return tuple(plans.values())


def read_plan(instance: Instance, entry: dict[str, Any]) -> Plan:
    """A plan of the file, on the instance's nodes."""
    names = [group.name for group in instance.cluster.groups]
    order = [names.index(GROUPS[node]) for node in entry["placement"]]
    config = Configuration(
        degrees=uniform_degrees(instance, entry["tp"]),
        dp=entry["dp"],
        pp=entry["pp"],
        micro_batch=entry["mbs"],
        schedule="1f1b",
        recompute=tuple(way for way in RECOMPUTE_WAYS if way in instance.search.recompute),
        zero=0,
        nodes_used=tuple(order.count(j) for j in range(len(names))),
    )
    boundaries = tuple(accumulate(entry["partition"], initial=0))
    counts = [entry["num_microbatches"]] * config.dp
    return Decisions(tuple(order), boundaries, tuple(counts)).plan(build_tables(instance, config))


def _outside(instance: Instance, plan: Plan, costs: PlanCosts) -> list[str]:
    reasons = []
    if plan.config not in set(configs(instance)):
        reasons.append("configuration not in the plan space")
    blocks = [layer.is_block for layer in instance.workload.layers]
    ends = [stage.layers for stage in plan.replicas[0].stages]
    bare = [k for k, (begin, end) in enumerate(ends) if not any(blocks[begin:end])]
    if bare and not instance.search.embedding_only_stages:
        reasons.append(f"no block on stage {bare[0]}")
    over = costs.memory_bytes - costs.limit_bytes
    if over.max() > 0:
        k, r = np.unravel_index(int(over.argmax()), over.shape)
        need, limit = costs.memory_bytes[k, r] / GIB, costs.limit_bytes[k, r] / GIB
        reasons.append(f"memory of stage {k}: {need:.1f} of {limit:.1f} GiB")
    return reasons


def judge(instance: Instance, plan: Plan) -> Judgement:
    """Step time of a plan by the simulator, and what keeps it out of the plan space."""
    costs = plan_costs(instance, plan)
    ends = (0, *(stage.layers[1] for stage in plan.replicas[0].stages))
    partition = tuple(end - begin for begin, end in pairwise(ends))
    outside = tuple(_outside(instance, plan, costs))
    return Judgement(plan.config, partition, step_time_ns(costs), outside)


def their_space(instance: Instance) -> Instance:
    """The instance with the plan space of FASOP: all nodes, no recomputation, no ZeRO."""
    narrow = {"recompute": ("none",), "zero": (0,), "idle_nodes": False}
    return instance.but(search=narrow)
