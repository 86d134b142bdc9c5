"""Nodes of several machines: best plans, bounds, launch files, and what cannot go with them."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from formulations.costs.tables import build_tables
from formulations.instance import Instance, Link
from formulations.instance.cluster import joined_group
from formulations.instance.load import parse_instance
from formulations.space import PlanSpace, configs
from solver.heuristics.time_tables import TimeTables
from solver.options import Method, SolveOptions
from solver.search.driver import solve
from solver.verify.bounds import Prover
from solver.verify.closed_forms import ClosedForms
from tests.best_plans import check_claims, check_verified, optima_ns
from tests.export_cases import UNTIED
from tests.seeds import few_and_many
from tests.small_instances import ROOMY, gpu, instance_of, nodes_of, random_layers, with_ends
from tests.small_instances import workload as workload_of
from tests.space.test_launchable import exported, read_back

METHODS: tuple[Method, ...] = ("exact", "cpsat", "milp")


def joined_instance(seed: int) -> Instance:
    """Four to six machines of two GPUs, joined by two; tensor groups and sequences span them."""
    rng = random.Random(seed)
    groups = [
        joined_group(
            nodes_of(
                gpu(name, tflops, rng.choice([1.2, 8])),
                gpus_per_node=2,
                nodes=2 * rng.randint(1, 2),
                intra_node=Link(bandwidth_bytes_per_s=rng.choice([1e9, 4e10]), latency_s=1e-6),
                inter_node=Link(bandwidth_bytes_per_s=rng.choice([1e9, 2e10]), latency_s=1e-5),
            ),
            2,
        )
        for name, tflops in [("fast", 120), ("slow", 60)][: rng.randint(1, 2)]
    ]
    chain = random_layers(rng, with_ends(rng.randint(2, 3)))
    workload = workload_of(chain, 8, rng.randint(1, 20) * 10**6, rng.random() < 0.5)
    attended = {"key_value_bytes": 10**6, "query_bytes": 10**6, "output_tensors": 1}
    runs = [run.but(layer=attended) for run in workload.layer_runs]
    workload = workload.but(
        layer_runs=tuple(runs), kv_heads=4, sequence_length=64, flash_attention=True
    )
    search = {
        "micro_batch": (1,),
        "context_parallel": (1, 2, 4),
        "zero": (0, 1, 3),
        "schedule": ("interleaved",) if seed % 5 == 4 else ("1f1b",),
        "target": "any",
    }
    return instance_of(f"joined_{seed}", workload, groups, (2, 0.9), limits=ROOMY).but(
        search=search
    )


@pytest.mark.parametrize("seeds", few_and_many(range(60), 12))
def test_all_engines_find_the_best_plan_of_all(seeds: Sequence[int]) -> None:
    """As brute force does; closed-form bounds are not above it, the verifier proves it."""
    for seed in seeds:
        instance = joined_instance(seed)
        best, listed = optima_ns(instance), [*configs(instance)]
        if not listed:  # too few blocks to interleave
            continue
        assert {config.degrees[0].width for config in listed} == {4}
        assert {config.cp for config in listed} == {1, 2, 4}
        tables = TimeTables(instance)
        verified = ClosedForms(Prover(PlanSpace(instance)), listed).work_ns().tolist()
        for config, *bounds in zip(listed, tables.packed_ns(listed), verified, strict=True):
            assert max(bounds) <= best.get(config, max(bounds)), (seed, config)
        for config in listed[:: len(listed) // 2]:
            check_claims(build_tables(instance, config), best.get(config))
        least = min(best.values(), default=None)
        for method in METHODS if seed % 24 == 0 else METHODS[:1]:
            assert solve(instance, SolveOptions(method=method)).step_time_ns == least, seed
        check_verified(solve(instance))


#: Four machines of four GPUs, as two nodes.
MACHINES = f"""
name: joined
workload: {{{UNTIED}, global_batch: 32, flash_attention: true}}
cluster:
  joined_nodes: 2
  groups:
    - name: a
      gpu: A100-80
      gpus_per_node: 4
      nodes: 4
      inter_node: InfiniBand HDR
      price: 1 USD/h
"""


@pytest.mark.parametrize("target", ["megatron", "torchtitan"])
def test_jobs_run_on_all_machines(target: str, tmp_path: Path) -> None:
    """Hosts are machines, ranks count their GPUs, and `evaluate` makes the plan of them."""
    search = f"search: {{target: {target}, context_parallel: [2], tensor_parallel: [4]}}"
    instance = parse_instance(MACHINES + search, "x.yaml", Path())
    (group,) = instance.cluster.groups
    assert (group.nodes, group.gpus_per_node, group.price_usd_per_hour) == (2, 8, 2)
    plan = solve(instance).plan
    assert plan is not None
    texts = exported(instance, plan, target)  # type: ignore[arg-type]
    assert texts["hosts.txt"].split() == ["a-0", "a-1", "a-2", "a-3"]
    ranks = [line.split(",")[1:3] for line in texts["ranks.csv"].splitlines()[1:]]
    assert ranks == [[f"a-{machine}", str(gpu)] for machine in range(4) for gpu in range(4)]
    assert read_back(instance, texts, tmp_path).replicas == plan.replicas
