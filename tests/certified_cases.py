"""Plan files small enough to change in every field, which together use all of an instance."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import yaml

from formulations.instance import (
    Cluster,
    Instance,
    LayerRun,
    Limits,
    Link,
    NodeGroup,
    Objective,
    SearchSpace,
    ZoneLink,
)
from formulations.units import GIB
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.search.driver import solve
from tests.conftest import text_of
from tests.small_instances import gpu, layer, nodes_of, workload
from tests.verify.forgeries import forged


def solved_document(made: Instance) -> PlanDocument:
    return build_document(replace(solve(made), runtime_s=0.5), SolveOptions())


def instance(batch: int = 4, memory_gib: float = 8, **fields: Any) -> Instance:
    """Two nodes of two GPUs each, of different types; four layers with tied embeddings.

    Layers, GPUs and links all differ, and both nodes are used unless `search` says otherwise.
    """
    chain = [
        layer("embedding", 5, 3 * 10**6, 9 * 10**6),
        layer("block", 40, 20 * 10**6, 30 * 10**6),
        layer("block", 30, 25 * 10**6, 50 * 10**6),
        layer("head", 10, 5 * 10**6, 20 * 10**6),
    ]
    usual = {
        "name": "case",
        "source": "test",
        "workload": workload(chain, batch, 5 * 10**6, tied=True),
        "cluster": Cluster(
            groups=(group("fast", 120, memory_gib), group("slow", 60, memory_gib)),
            network_efficiency=((1, 1.0), (2, 0.9)),
        ),
        "search": SearchSpace(idle_nodes=False, micro_batch=(1, 2)),
        "limits": Limits(framework_reserve_bytes=GIB // 8),
    }
    return Instance.model_validate(usual | fields)


def narrow(**fields: Any) -> SearchSpace:
    """Tensor groups of two on all nodes, one sequence, nothing recomputed or split, unless told."""
    usual = {
        "idle_nodes": False,
        "tensor_parallel": (2,),
        "micro_batch": (1,),
        "recompute": ("none",),
        "zero": (0,),
    }
    return SearchSpace.model_validate(usual | fields)


#: Launches, and kernels that ramp up, fused attention at 40 % of the peak; slow memory for experts,
#: so that small changes of it count.
RAMPS = {
    "launch_overhead_s": 1e-5,
    "memory_latency_s": 4e-5,
    "efficiency_half_flops": 1e8,
    "attention_maximum": 0.4,
    "attention_half_flops": 1e8,
    "grouped_maximum": 0.3,
    "grouped_bandwidth": 1e-3,
    "permute_bandwidth": 1e-3,
}


def group(name: str, tflops: float, memory_gib: float) -> NodeGroup:
    """One node of two GPUs."""
    speed = tflops * 1e8
    return nodes_of(
        gpu(name, tflops, memory_gib).model_copy(update=RAMPS),
        name=name,
        gpus_per_node=2,
        price_usd_per_hour=tflops / 10,
        intra_node=Link(bandwidth_bytes_per_s=2 * speed, latency_s=1e-6),
        inter_node=Link(bandwidth_bytes_per_s=speed / 4, latency_s=1e-5),
    )


def attention(run: LayerRun) -> LayerRun:
    """A fifth of a block's FLOPs in fused scores, half of which are masked, and two norms."""
    if not run.layer.is_block:
        return run
    scores = run.layer.forward_flops // 5
    flops = {"unweighted_flops": scores, "attention_flops": scores // 2}
    return run.but(layer=flops | {"kernels": 3, "memory_kernels": 2})


def cheapest(free: Instance) -> Instance:
    """Least training cost within tight limits, with fused attention."""
    objective = Objective(minimize="training_cost", steps=1000)
    runs = tuple(map(attention, free.workload.layer_runs))
    free = free.but(objective=objective, workload={"layer_runs": runs})
    best = solved_document(free)
    tight = {
        "max_step_time_s": best.step_time_s,
        "max_cost_usd_per_step": best.cost_usd_per_step,
        "max_price_usd_per_hour": best.price_usd_per_hour,
    }
    return free.but(limits=tight | {"memory_headroom": 0.25})


def zones(made: Instance) -> Instance:
    """One of two stages of two tensor groups fills a node in zone x, the other two nodes in y."""
    fast, slow = made.cluster.groups
    slower = slow.but(zone="y"), slow.but(zone="y", name="slow2")
    groups = (fast.but(zone="x", gpus_per_node=4), *slower)
    link = ZoneLink(bandwidth_bytes_per_s=1e9, latency_s=1e-4, source="test")
    return made.but(cluster=made.cluster.but(groups=groups, zone_link=link))


CHANGES: dict[str, Callable[[Instance], Instance]] = {
    change.__name__: change for change in (cheapest, zones)
}
#: Fields of `search`, `workload` and all else, or a function that changes `instance`.
SPACES: dict[str, dict[str, Any]] = yaml.safe_load(text_of("certified.txt"))


def stop(fields: dict[str, Any]) -> None:
    """Opens all configurations of a file, by three quarters of their bounds."""
    for record in fields["closed_configs"]:
        record.update(reason="open", bound_ns=record["bound_ns"] * 3 // 4)
    bound_s = min(record["bound_ns"] for record in fields["closed_configs"]) / 1e9
    gap = 1 - bound_s / fields["step_time_s"]
    fields.update(status="feasible", termination="interrupted", lower_bound_s=bound_s, gap=gap)


def merged(value: Any, changes: Any) -> Any:
    """A value as JSON has it, with others in it; of a list they have the numbers of entries."""
    if isinstance(value, list) and isinstance(changes, dict):
        return [merged(entry, changes.get(n, {})) for n, entry in enumerate(value)]
    if isinstance(value, dict) and isinstance(changes, dict):
        return value | {name: merged(value.get(name), new) for name, new in changes.items()}
    return changes


@cache
def certified(name: str) -> PlanDocument:
    fields = SPACES[name]
    made = instance(search=narrow(**fields.get("search", {})))
    made = made.but(workload=fields.get("workload", {}))
    made = CHANGES.get(fields.get("change", ""), Instance.but)(made)
    changed = merged(json.loads(made.model_dump_json()), fields.get("else", {}))
    document = solved_document(Instance.model_validate_json(json.dumps(changed)))
    return forged(document, stop) if name == "interrupted" else document


CASES = {name: partial(certified, name) for name in SPACES}
