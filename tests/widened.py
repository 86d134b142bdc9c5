"""Tiny random instances in which every memory strategy is free."""

import random

from formulations.instance import Instance
from formulations.instance.workload import OPTIMIZER_BYTES, OptimizerState, Recompute
from tests.small_instances import random_instance

STATES: tuple[OptimizerState, ...] = ("fp32", "bf16", "8bit")
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


def widened(seed: int) -> Instance:
    """`random_instance` with attention in its blocks, free recomputation, ZeRO 0 to 3.

    Sequence parallelism, scatter and gather and the precision of optimizer states go by the seed.
    """
    instance, rng = random_instance(seed), random.Random(seed)
    runs = []
    for run in instance.workload.layer_runs:
        layer = run.layer
        core = {
            "unweighted_flops": layer.forward_flops * rng.randint(0, 3) // 8,
            "core_kernels": 1,
            "core_bytes": layer.sharded_activation_bytes * rng.randint(1, 7) // 8,
            "unsplit_bytes": layer.replicated_activation_bytes * rng.randint(0, 1) // 2,
        }
        changed = layer.model_copy(update=core) if layer.is_block else layer
        runs.append(run.but(layer=changed))
    each, block = OPTIMIZER_BYTES[rng.choice(STATES)]
    workload = instance.workload.but(
        layer_runs=tuple(runs),
        gradient_bytes=rng.choice([2, 4]),
        optimizer_bytes=each,
        optimizer_block_bytes=block,
    )
    return instance.but(
        workload=workload,
        search={
            "recompute": RECOMPUTE,
            "zero": (0, 1, 2, 3),
            "sequence_parallel": rng.random() < 0.5,
            "scatter_gather": rng.random() < 0.5,
            "pipeline_parallel": (1, 2, 3),
        },
    )
