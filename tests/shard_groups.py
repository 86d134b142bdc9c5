"""Tiny random instances whose replicas are in several shard groups."""

import random

from formulations.instance import Instance, Link, SearchSpace
from formulations.instance.search import Overlap
from tests.small_instances import (
    HIDDEN,
    ROOMY,
    gpu,
    instance_of,
    nodes_of,
    random_layers,
    with_ends,
    workload,
)


def sharded_instance(seed: int) -> Instance:
    """Two to four nodes of two or four GPUs, of two types; ZeRO 1 to 3 in one to four groups."""
    rng = random.Random(seed)
    size = rng.choice([2, 4])
    groups = [
        nodes_of(
            gpu(name, tflops, rng.choice([1.2, 8])),
            gpus_per_node=size,
            nodes=rng.randint(1, 2) if size == 2 else 1,
            intra_node=Link(bandwidth_bytes_per_s=rng.choice([1e10, 4e10]), latency_s=1e-6),
            inter_node=Link(bandwidth_bytes_per_s=rng.choice([1e9, 5e9]), latency_s=1e-5),
        )
        for name, tflops in [("fast", 120), ("slow", 60)][: rng.randint(1, 2)]
    ]
    chain = random_layers(rng, with_ends(rng.randint(2, 3)))
    return instance_of(
        f"sharded_{seed}",
        workload(
            chain, 4 if len(groups) > 1 else 8, rng.randint(1, 20) * 10**6, rng.random() < 0.5
        ),
        groups,
        (2, 0.9),
        (4, 0.7),
        search=SearchSpace(
            micro_batch=(1,),
            zero=(1, 2, 3),
            optimizer_instances=(1, 2),
            idle_nodes=False,
            schedule=("interleaved",) if seed % 5 == 4 else ("1f1b",),
            overlap=HIDDEN if seed % 4 == 3 else Overlap(),
        ),
        limits=ROOMY,
    )
