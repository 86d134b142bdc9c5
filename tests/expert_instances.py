"""Tiny instances whose blocks have experts, on nodes of unlike sizes."""

import random

from formulations.instance import Instance, LayerRun
from tests.small_instances import random_instance

#: GPUs of a node of the first and of the second group.
NODES = ((2, 2), (4, 4), (4, 2), (2, 4), (1, 2))


def expert_instance(seed: int) -> Instance:
    """Some blocks with 4 experts, attention whose sequences may be shared, all of ZeRO."""
    instance, rng = random_instance(seed), random.Random(seed)
    workload = instance.workload
    runs = []
    for run in workload.layer_runs:
        one = run.layer
        if one.is_block and rng.random() < 0.8:
            experts = rng.randint(1, 60) * 10**6
            one = one.but(
                sharded_parameters=one.sharded_parameters + experts,
                expert_parameters=experts,
                expert_flops=one.forward_flops // 2,
                routed_bytes=rng.randint(1, 4) * 10**6,
                expert_all_reduces=seed % 2,
                key_value_bytes=rng.randint(1, 20) * 10**6,
                query_bytes=rng.randint(1, 20) * 10**6,
            )
        runs.append(LayerRun(layer=one, count=run.count))
    sizes = rng.choice(NODES)
    groups = tuple(
        group.but(gpus_per_node=size)
        for group, size in zip(instance.cluster.groups, sizes, strict=False)
    )
    return instance.but(
        workload=workload.but(layer_runs=tuple(runs), experts=4),
        cluster={"groups": groups},
        search={
            "expert_parallel": (1, 2, 4),
            "expert_tensor_parallel": (1, "tp"),
            "context_parallel": (1, 2),
            "sequence_parallel": rng.random() < 0.7,
            "tensor_parallel": (1, 2),
            "micro_batch": (1,),
            "pipeline_parallel": (1, 2, 3),
            "zero": (0, 1, 2, 3),
        },
    )
