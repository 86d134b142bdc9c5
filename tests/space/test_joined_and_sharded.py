"""Nodes of several machines, and replicas in several shard groups (HSDP).

Best plans, bounds, launch files, and who runs them.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.instance import Instance, Link
from formulations.instance.cluster import joined_group
from formulations.instance.load import parse_instance
from formulations.space import PlanSpace, configs
from formulations.space.launch import able
from solver.evaluate.read import read_run
from solver.heuristics.time_tables import TimeTables
from solver.options import Method, SolveOptions
from solver.search.driver import solve
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.closed_forms import ClosedForms
from tests.best_plans import check_claims, check_verified, optima_ns
from tests.export_cases import UNTIED
from tests.seeds import few_and_many
from tests.small_instances import ROOMY, gpu, instance_of, nodes_of, random_layers, with_ends
from tests.small_instances import workload as workload_of
from tests.space.test_launchable import exported, read_back

METHODS: tuple[Method, ...] = ("exact", "cpsat", "milp")


def drawn(rng: random.Random, name: str, gpus: int, machines: int, batch: int) -> Instance:
    """One or two types, nodes of so many GPUs, of one machine or several."""
    groups = [
        joined_group(
            nodes_of(
                gpu(name, tflops, rng.choice([1.2, 8])),
                gpus_per_node=gpus // machines,
                nodes=machines * (rng.randint(1, 2) if machines > 1 or gpus == 2 else 1),
                intra_node=Link(bandwidth_bytes_per_s=rng.choice([1e9, 4e10]), latency_s=1e-6),
                inter_node=Link(bandwidth_bytes_per_s=rng.choice([1e9, 2e10]), latency_s=1e-5),
            ),
            machines,
        )
        for name, tflops in [("fast", 120), ("slow", 60)][: rng.randint(1, 2)]
    ]
    chain = random_layers(rng, with_ends(rng.randint(2, 3)))
    workload = workload_of(chain, batch, rng.randint(1, 20) * 10**6, rng.random() < 0.5)
    return instance_of(name, workload, groups, (2, 0.9), (4, 0.7), limits=ROOMY)


def joined(seed: int) -> Instance:
    """Two to eight machines of two GPUs, joined by two; tensor groups and sequences span them."""
    made = drawn(random.Random(seed), f"joined_{seed}", gpus=4, machines=2, batch=8)
    attended = {"key_value_bytes": 10**6, "query_bytes": 10**6, "output_tensors": 1}
    runs = [run.but(layer=attended) for run in made.workload.layer_runs]
    more = {"kv_heads": 4, "sequence_length": 64, "flash_attention": True}
    return made.but(
        workload={"layer_runs": tuple(runs), **more},
        search={"context_parallel": (1, 2, 4), "zero": (0, 1, 3), "target": "any"},
    )


def sharded(seed: int) -> Instance:
    """Nodes of two or four GPUs, of two types; ZeRO 1 to 3 in one to four groups."""
    rng = random.Random(seed)
    made = drawn(rng, f"sharded_{seed}", gpus=rng.choice([2, 4]), machines=1, batch=4)
    search = {"zero": (1, 2, 3), "optimizer_instances": (1, 2), "idle_nodes": False}
    return made.but(search=search, workload={"global_batch": 8 // len(made.cluster.groups)})


@pytest.mark.parametrize("make", [joined, sharded])
@pytest.mark.parametrize("seeds", few_and_many(range(60), 24))
def test_all_engines_find_the_best_plan_of_all(
    seeds: Sequence[int], make: Callable[[int], Instance]
) -> None:
    """As brute force does; closed-form bounds are not above it, the verifier proves it."""
    special = 0
    for seed in seeds:
        schedule = ("interleaved",) if seed % 5 == 4 else ("1f1b",)
        search = {"schedule": schedule, "embedding_only_stages": seed % 5 == 4}
        instance = make(seed).but(search={"micro_batch": (1,), **search})
        best, listed = optima_ns(instance), [*configs(instance)]
        if not listed:  # too few layers to interleave
            continue
        tables = TimeTables(instance)
        verified = ClosedForms(Prover(PlanSpace(instance)), listed).work_ns().tolist()
        for config, *bounds in zip(listed, tables.packed_ns(listed), verified, strict=True):
            assert max(bounds) <= best.get(config, max(bounds)), (seed, config)
        several = [config for config in listed if config.optimizer_instances > 1 or config.cp > 1]
        for config in several[:: 1 + len(several) // 2]:
            check_claims(build_tables(instance, config), best.get(config))
        least = min(best.values(), default=None)
        for method in METHODS if seed % 48 == 24 or make is sharded else METHODS[:1]:
            assert solve(instance, SolveOptions(method=method)).step_time_ns == least, seed
        check_verified(solve(instance))
        special += len(several)
    assert special > len(seeds)


def machines_of(cluster: str, search: str) -> Instance:
    """GPT-2 on nodes of A100."""
    text = f"""
name: nodes
workload: {{{UNTIED}, global_batch: 32, flash_attention: true}}
cluster:
  {cluster}
  groups:
    - {{name: a, gpu: A100-80, gpus_per_node: 4, nodes: 4, inter_node: InfiniBand HDR,
       price: 1 USD/h}}
search: {{{search}}}
"""
    return parse_instance(text, "x.yaml", Path())


@pytest.mark.parametrize("target", ["megatron", "torchtitan"])
def test_jobs_run_on_all_machines(target: str, tmp_path: Path) -> None:
    """Hosts are machines, ranks count their GPUs, and `evaluate` makes the plan of them."""
    search = f"target: {target}, context_parallel: [2], tensor_parallel: [4]"
    instance = machines_of("joined_nodes: 2", search)
    (group,) = instance.cluster.groups
    assert (group.nodes, group.gpus_per_node, group.price_usd_per_hour) == (2, 8, 2)
    plan = solve(instance).plan
    assert plan is not None
    texts = exported(instance, plan, target)  # type: ignore[arg-type]
    assert texts["hosts.txt"].split() == ["a-0", "a-1", "a-2", "a-3"]
    ranks = [line.split(",")[1:3] for line in texts["ranks.csv"].splitlines()[1:]]
    assert ranks == [[f"a-{machine}", str(gpu)] for machine in range(4) for gpu in range(4)]
    assert read_back(instance, texts, tmp_path).replicas == plan.replicas


@pytest.mark.parametrize(
    ("degrees", "launchers"),
    [
        ("zero=1", ["megatron"]),
        ("pp=2,zero=1", ["megatron", "torchtitan"]),
        ("zero=2", ["torchtitan"]),
        ("zero=3", ["torchtitan"]),
    ],
)
def test_what_is_exported_is_read_back(degrees: str, launchers: list[str], tmp_path: Path) -> None:
    """By whoever launches shard groups; others say that they have none."""
    instance = machines_of("", "target: any")
    plan = read_run(instance, stated=f"{degrees},micro_batch=2,optimizer_instances=2").plan
    assert able(instance, plan) == launchers
    for target in launchers:
        narrow = machines_of("", f"target: {target}")
        (folder := tmp_path / target).mkdir()
        again = read_back(narrow, exported(narrow, plan, target), folder)  # type: ignore[arg-type]
        assert again.config == plan.config.but(recompute=again.config.recompute)
        costs = (plan_costs(instance, which) for which in (plan, again))
        assert len({step_time_ns(each) for each in costs}) == 1
