"""Random instances whose stages fit only if they recompute, some of them, some of their blocks."""

import random
from collections.abc import Iterable
from itertools import pairwise

from formulations.costs.stage_costs import least_recomputed, memory_parts
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance, Workload
from formulations.plan import Configuration
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.search.driver import solve
from tests import brute_force
from tests.random_configs import random_config, scheduled
from tests.small_instances import random_instance


def with_cores(workload: Workload) -> Workload:
    """Blocks in which half of what is split over the GPUs is the attention's core."""
    runs = [
        run.but(
            layer={
                "core_bytes": run.layer.sharded_activation_bytes // 2,
                "core_kernels": run.layer.kernels // 2,
                "unweighted_flops": run.layer.forward_flops // 4,
            }
        )
        for run in workload.layer_runs
    ]
    return workload.but(layer_runs=tuple(runs))


def cramped_instance(seed: int, schedule: str = "1f1b") -> tuple[Instance, Configuration]:
    """A random instance with all ways to recompute, and a config for which memory is scarce."""
    for number in range(seed, seed + 50_000, 1000):
        instance = scheduled(random_instance(number), schedule, number)  # type: ignore[arg-type]
        instance = instance.but(
            search={"recompute": ("none", "selective", "full")},
            workload=with_cores(instance.workload),
        )
        if (config := random_config(instance, seed)) and config.pp > 1:
            return with_less_memory(instance, config, random.Random(seed)), config
    raise AssertionError("fifty instances without a configuration")


def with_less_memory(instance: Instance, config: Configuration, rng: random.Random) -> Instance:
    """Between what one split needs at most and at least, each group somewhere else."""
    tables = build_tables(instance, config)
    stages = list(pairwise(list(brute_force.all_splits(tables))[-1]))
    few, many = (1, 4) if config.vpp == 1 else (tables.num_micro_batches // config.dp,) * 2
    devices = [(d, stages[d :: config.pp]) for d in range(config.pp)]
    least = max(brute_force.least_bytes(tables, own, d, few) for d, own in devices)
    plain = [[least_recomputed(tables, chunk) for chunk in own] for _, own in devices]
    most = max(
        sum(memory_parts(tables, own, d, 0, many, ways))
        for (d, own), ways in zip(devices, plain, strict=True)
    )
    keep = 1 - instance.limits.memory_headroom
    groups = tuple(
        group.but(gpu={"memory_bytes": int(rng.uniform(least, most) / keep) + 1})
        for group in instance.cluster.groups
    )
    return instance.but(cluster={"groups": groups})


def one_degree(seed: int, schedule: str, **fields: object) -> Instance:
    """A cramped instance that leaves one pipeline degree, and its fields of `search` changed."""
    instance, config = cramped_instance(seed, schedule)
    degrees = {"pipeline_parallel": (config.pp,), "data_parallel": (config.dp,), "zero": (0,)}
    return instance.but(search=degrees | fields)


def recomputing(instances: Iterable[Instance]) -> PlanDocument:
    """The first optimum some of whose stages recompute."""
    for instance in instances:
        document = build_document(solve(instance), SolveOptions())
        stages = [stage for one in document.replicas for stage in one.stages]
        if any(stage.recomputed.blocks for stage in stages):
            return document
    raise AssertionError("no instance recomputes")


def cramped_tables(seed: int, schedule: str = "1f1b") -> CostTables:
    """Costs of that configuration."""
    return build_tables(*cramped_instance(seed, schedule))
