"""Configurations of drawn instances, with their layer times, for recorded figures of bounds."""

from collections.abc import Callable
from functools import cache

from formulations.costs.compute import LayerTimes, TimeColumns
from formulations.instance import Instance
from formulations.plan import Configuration
from formulations.space import configs
from tests.random_configs import crowded_instance, scheduled, unlike_replicas, zoned
from tests.small_instances import expert_instance, random_instance, widened
from tests.stage_degrees import unlike_instance

Drawn = tuple[Instance, list[Configuration], list[LayerTimes]]


def _three_types(seed: int) -> Instance:
    """Unlike replicas on three groups of nodes, even shares for odd seeds."""
    instance = unlike_replicas(seed, single=False).but(search={"data_parallel": None})
    shares = ("uneven", "even")[seed % 2]
    return instance.but(search={"micro_batches": shares, "pipeline_parallel": None})


def _deep(seed: int) -> Instance:
    """Two types on eight nodes of up to eight GPUs, and many blocks; in zones or not."""
    instance = crowded_instance(seed)
    sizes = ((4, 8), (8, 2), (6, 4), (4, 4))[seed % 4]
    groups = tuple(
        group.but(nodes=4, gpus_per_node=size)
        for group, size in zip(instance.cluster.groups, sizes, strict=True)
    )
    runs = tuple(run.but(count=run.count * 6) for run in instance.workload.layer_runs[1:-1])
    ends = instance.workload.layer_runs[0], instance.workload.layer_runs[-1]
    chosen = {
        "schedule": ("1f1b", "zb-h1", "gpipe", "interleaved"),
        "micro_batches": ("even", "even", "uneven")[seed % 3],
        "micro_batch": (1, 2),
        "zero": (0, 1, 3),
        "tensor_parallel": (1, 2),
    }
    instance = instance.but(
        cluster={"groups": groups},
        workload={"layer_runs": (ends[0], *runs, ends[1]), "global_batch": 32},
        search=chosen,
    )
    return zoned(instance, seed) if seed % 4 == 3 else instance


MAKERS: dict[str, Callable[[int], Instance]] = {
    "deep": _deep,
    "random": random_instance,
    "crowded": crowded_instance,
    "three types": _three_types,
    "experts": expert_instance,
    "strategies": widened,
    "unlike groups": unlike_instance,
    "zb-h1": lambda seed: scheduled(crowded_instance(seed), "zb-h1", seed),
    "interleaved": lambda seed: scheduled(crowded_instance(seed), "interleaved", seed),
}


@cache
def drawn_configs() -> dict[str, Drawn]:
    """At most 20 of each instance, of all kinds."""
    drawn: dict[str, Drawn] = {}
    for kind, make in MAKERS.items():
        for seed in range(5):
            space = list(configs(instance := make(seed)))
            chosen = space[:: -(-len(space) // 20)] if space else []
            times = [
                TimeColumns(instance).times(config.degrees, config.micro_batch, config.recompute[0])
                for config in chosen
            ]
            if chosen:
                drawn[f"{kind} {seed}"] = instance, chosen, times
    return drawn
