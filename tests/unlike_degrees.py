"""Tiny instances whose node groups have degrees of their own, and configurations of them."""

import random

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance
from formulations.instance.search import ScheduleName
from formulations.plan import Configuration
from formulations.space import configs
from tests.random_configs import scheduled, zoned
from tests.small_instances import random_instance

#: What nodes of the two groups may have, in GPUs.
SIZES = [(4, 2), (2, 4), (2, 2), (4, 1), (2, 1), (3, 2)]
SCHEDULES: tuple[ScheduleName, ...] = ("1f1b", "gpipe", "zb-h1", "interleaved")


def unlike_instance(seed: int) -> Instance:
    """Two types, up to three nodes of up to four GPUs, micro-batches of two and four sequences.

    All schedules, even and uneven shares, whole and split messages, zones and ZeRO in turn.
    """
    rng = random.Random(seed)
    one = next(
        found
        for found in map(random_instance, range(100 * seed, 100 * seed + 100))
        if len(found.cluster.groups) == 2
    )
    sizes = rng.choice(SIZES)
    groups = tuple(
        group.but(gpus_per_node=size, nodes=1 if size == 4 else group.nodes)
        for group, size in zip(one.cluster.groups, sizes, strict=True)
    )
    workload = one.workload.but(global_batch=8, sequence_length=192)
    schedule = SCHEDULES[seed % 4]
    one = scheduled(one, schedule, seed) if schedule == "interleaved" else one
    search = one.search.model_copy(
        update={
            "degrees": "per_group",
            "micro_batch": (2, 4),
            "micro_batches": "uneven" if seed % 8 == 1 else "even",
            "idle_nodes": False,
            "schedule": (schedule,),
            "zero": (0, 1, 2, 3) if rng.random() < 0.3 else (rng.randint(0, 1),),
            "recompute_per": rng.choice(["stage", "plan"]),
            **rng.choice([{}, {"scatter_gather": True}, {"sequence_parallel": True}]),
        }
    )
    made = one.but(cluster={"groups": groups}, workload=workload, search=search)
    return zoned(made, seed) if seed % 6 == 5 else made


def meshed_groups(seed: int) -> Instance:
    """The same for FlagScale, tied embeddings, sequence parallelism and ZeRO 1 by the seed."""
    search = {
        "target": "flagscale",
        "micro_batches": "even",
        "schedule": ("1f1b",),
        "recompute": ("none", "full"),
        "embedding_only_stages": False,
        "zero": (seed % 2,),
        "sequence_parallel": seed % 5 > 0,
    }
    return unlike_instance(seed).but(search=search, workload={"tied_embeddings": seed % 3 < 2})


def unlike_configs(instance: Instance, most_stages: int = 3) -> list[Configuration]:
    """Those whose groups differ in their degrees, small enough to be tried out."""
    return [
        config
        for config in configs(instance)
        if len(set(config.degrees_used)) > 1 and config.pp <= most_stages and config.dp <= 4
    ]


def unlike_tables(seed: int) -> CostTables | None:
    """Costs of one of them; None if there is none."""
    instance = unlike_instance(seed)
    found = unlike_configs(instance)
    return build_tables(instance, random.Random(seed).choice(found)) if found else None
