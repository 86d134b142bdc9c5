"""Replicas in several shard groups (HSDP): best plans, bounds, launch files, and who runs them."""

import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.instance import Instance, Link, SearchSpace
from formulations.instance.load import parse_instance
from formulations.instance.search import Overlap
from formulations.instance.targets import Target
from formulations.space import PlanSpace, configs
from formulations.space.launch import able
from solver.evaluate.read import read_run
from solver.export import megatron
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from solver.heuristics.time_tables import TimeTables
from solver.options import Method, SolveOptions
from solver.search.driver import solve
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.closed_forms import ClosedForms
from tests.best_plans import check_claims, check_verified, optima_ns
from tests.export_cases import UNTIED
from tests.seeds import few_and_many
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

METHODS: tuple[Method, ...] = ("exact", "cpsat", "milp")

#: Two nodes of four A100: GPT-2 in eight replicas, or in four of two stages.
TWO_NODES = f"""
name: two nodes
workload: {{{UNTIED}, global_batch: 32}}
cluster:
  groups:
    - {{name: a, gpu: A100-80, gpus_per_node: 4, nodes: 2, inter_node: InfiniBand HDR}}
"""


def two_nodes(target: Target = "any") -> Instance:
    return parse_instance(f"{TWO_NODES}search: {{target: {target}}}", "x.yaml", Path())


@pytest.mark.parametrize("seeds", few_and_many(range(60), 20))
def test_all_engines_find_the_best_plan_of_all(seeds: Sequence[int]) -> None:
    """As brute force does; closed-form bounds are not above it, the verifier proves it."""
    several = 0
    for seed in seeds:
        instance = sharded_instance(seed)
        best, known = optima_ns(instance), [*configs(instance)]
        if not known:
            continue
        tables = TimeTables(instance)
        verified = ClosedForms(Prover(PlanSpace(instance)), known).work_ns().tolist()
        for config, *bounds in zip(known, tables.packed_ns(known), verified, strict=True):
            assert max(bounds) <= best.get(config, max(bounds)), (seed, config)
        grouped = [config for config in known if config.optimizer_instances > 1]
        for config in islice(grouped, 2):
            check_claims(build_tables(instance, config), best.get(config))
        least = min(best.values(), default=None)
        for method in METHODS:
            assert solve(instance, SolveOptions(method=method)).step_time_ns == least, seed
        check_verified(solve(instance))
        several += len(grouped)
    assert several > len(seeds)


@pytest.mark.parametrize("degrees", ["zero=1", "pp=2,zero=1", "zero=2", "zero=3"])
def test_what_is_exported_is_read_back(degrees: str, tmp_path: Path) -> None:
    """By whoever launches it: Megatron-LM and torchtitan; others say that they have no groups."""
    instance = two_nodes()
    plan = read_run(instance, stated=f"{degrees},micro_batch=2,optimizer_instances=2").plan
    launchers = able(instance, plan)
    assert launchers == [
        target
        for target, runs in {
            "megatron": plan.config.zero == 1,
            "torchtitan": (plan.config.zero == 1) == (plan.config.pp > 1),
        }.items()
        if runs
    ]
    for target in launchers:
        exporter = EXPORTERS["megatron" if target == "megatron" else "torchtitan"]
        folder = tmp_path / target
        folder.mkdir()
        job = Job(two_nodes(target), plan)
        texts = exporter.files(job)
        exporter.check(job, texts)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        arguments = folder / megatron.ARGUMENTS if target == "megatron" else None
        again = read_run(two_nodes(target), arguments, None if arguments else folder)
        assert again.config == plan.config.but(recompute=again.config.recompute)
        costs = (plan_costs(instance, which) for which in (plan, again.plan))
        assert len({step_time_ns(each) for each in costs}) == 1


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
