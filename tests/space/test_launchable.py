"""What a search for a target chooses can be launched by it: plans of random instances, exported."""

import json
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import pytest

from formulations.costs.context import context_methods
from formulations.instance import Instance
from formulations.instance.targets import TARGETS as LAUNCH_TARGETS
from formulations.plan import Plan
from formulations.space import PlanSpace
from formulations.space.launch import able
from formulations.space.slots import runs_order
from solver.evaluate.read import read_run
from solver.export import accelerate, deepspeed, megatron
from solver.export.job import Job, read_settings
from solver.export.registry import EXPORTERS
from solver.search.driver import solve
from tests.hand_made import uniform_plans
from tests.oracles.launch import held_twice
from tests.seeds import each_of, few_and_many, one_each
from tests.small_instances import expert_instance, random_instance
from tests.stage_degrees import unlike_instance

Launcher = Literal["megatron", "flagscale", "torchtitan"]
TARGETS: tuple[Launcher, ...] = get_args(Launcher)
MAKERS = random_instance, expert_instance, unlike_instance


def one_tensor(instance: Instance) -> Instance:
    """The instance, whose blocks send one tensor, so that sequences may be shared."""
    runs = [run.but(layer={"output_tensors": 1}) for run in instance.workload.layer_runs]
    return instance.but(workload={"layer_runs": tuple(runs)})


def repeated_per_op(instance: Instance) -> Instance:
    """The instance, whose blocks can be recomputed per operator: a third kept, half repeated."""
    runs = []
    for run in instance.workload.layer_runs:
        layer = run.layer
        figures = {
            "per_op_whole_bytes": layer.replicated_activation_bytes // 3,
            "per_op_sharded_bytes": layer.sharded_activation_bytes // 3,
            "per_op_flops": layer.forward_flops // 2,
            "per_op_kernels": (layer.kernels - layer.memory_kernels) // 2,
        }
        runs.append(run.but(layer=figures) if layer.is_block else run)
    return instance.but(workload={"layer_runs": tuple(runs)})


def instance_for(target: Launcher, seed: int) -> Instance:
    """A tiny instance with all that the target's rules leave; every fifth has moments in bf16."""
    rng = random.Random(seed)
    made = MAKERS[seed % len(MAKERS)](seed)
    wide = {
        "target": "any",
        "schedule": ("1f1b", "gpipe", "interleaved", "zb-h1"),
        "recompute": ("none", "selective", "full"),
        "zero": (0, 1, 2, 3),
        "micro_batches": "uneven",
        "sequence_parallel": rng.random() < 0.7,
    }
    made = one_tensor(made)
    if target == "torchtitan":
        made = repeated_per_op(made)
        wide["recompute"] = ("none", "per_op", "full")
    search = made.search.model_copy(update=wide)
    search = search.model_copy(update={**LAUNCH_TARGETS[target].kept(search), "target": target})
    return made.but(
        search=search,
        workload={
            "precision": "bf16",
            "flash_attention": True,
            "tied_embeddings": made.workload.tied_embeddings and rng.random() < 0.5,
            "optimizer_bytes": 8 if target != "torchtitan" and seed % 5 == 0 else 12,
            "mtp_layers": 1 if target != "flagscale" and seed % 7 == 0 else 0,
        },
    )


def exported(instance: Instance, plan: Plan, target: Launcher) -> dict[str, str]:
    """The files of a plan that its target runs."""
    job, exporter = Job(instance, plan), EXPORTERS[target]
    assert target in able(instance, plan)
    assert [fault.found for fault in exporter.faults(job)] == []
    texts = exporter.files(job)
    exporter.check(job, texts)
    return texts


def read_back(instance: Instance, texts: dict[str, str], folder: Path) -> Plan:
    """What `evaluate` makes of the files of Megatron-LM or torchtitan."""
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    arguments = folder / megatron.ARGUMENTS if megatron.ARGUMENTS in texts else None
    return read_run(instance, arguments, None if arguments else folder).plan


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", one_each(range(60), 30))
def test_every_plan_of_a_target_is_exported_and_read_back(
    target: Launcher, seed: int, tmp_path: Path
) -> None:
    """Its exporter takes whatever the search may choose, and `evaluate` makes the plan of it."""
    instance = instance_for(target, seed)
    best = solve(instance).plan
    for plan in (*islice(uniform_plans(instance), 30), *([best] if best else [])):
        texts = exported(instance, plan, target)
        # no run is read whose blocks share sequences in two ways, and none of FlagScale's
        if target == "flagscale" or len(set(context_methods(instance, plan.config))) > 1:
            continue
        own = read_back(instance, texts, tmp_path)
        # of one micro-batch, or one stage, several schedules are the same
        assert own == plan.but(config=plan.config.but(schedule=own.config.schedule))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seeds", few_and_many(range(60), 15))
def test_a_plan_is_in_the_space_where_its_exporter_takes_it(
    target: Launcher, seeds: Sequence[int]
) -> None:
    """Of all plans without a target those that have one, and no others; 0 to 3 where ZeRO is free.

    Lists are those of the target, so a plan leaves its space by the target's rules alone.
    """
    sides = [0, 0]
    plain = {"target": "any", "recompute": ("none",), "zero": (0, 1, 2, 3)}
    schedules = {"schedule": ("1f1b", "gpipe", "interleaved", "zb-h1")}
    for seed in seeds:
        wide = instance_for(target, seed).but(search=plain | schedules)
        kept = LAUNCH_TARGETS[target].kept(wide.search)
        narrow = wide.but(search={**kept, "zero": wide.search.zero, "target": target})
        for plan in islice(uniform_plans(wide), 60):
            if target == "torchtitan" and "all_to_all" in context_methods(wide, plan.config):
                continue  # no decision of a configuration
            stages = [plan.config.zero] if held_twice(plan.config) else narrow.search.zero
            configs = [plan.config.but(zero=zero) for zero in stages]
            jobs = [Job(wide, plan.but(config=config)) for config in configs]
            taken = not all(map(EXPORTERS[target].faults, jobs))
            inside = any(PlanSpace(narrow).departure(config) is None for config in configs)
            groups = narrow.cluster.node_groups
            inside &= runs_order(narrow, configs[0], [groups[node] for node in plan.node_order])
            assert taken == inside, (seed, plan.config)
            sides[taken] += 1
    assert min(sides) > len(seeds)


@each_of(range(60), 30)
def test_every_framework_is_told_what_gpus_split(seed: int) -> None:
    """Of plans that its exporter takes: nothing where no two GPUs have the same tensors."""
    wide = instance_for("torchtitan", seed)
    instance = wide.but(search={"target": "any", "sequence_parallel": seed % 2 > 0})
    for plan in islice(uniform_plans(instance), 20):
        job = Job(instance, plan)
        splits = plan.config.zero if held_twice(plan.config) else 0
        for exporter in EXPORTERS.values():
            if exporter.faults(job):
                continue
            texts = exporter.files(job)
            exporter.check(job, texts)
            if deepspeed.CONFIG in texts:
                told = json.loads(texts[deepspeed.CONFIG])["zero_optimization"]["stage"]
                assert told == splits or (told == 1 and not held_twice(plan.config))
            if accelerate.MODULE in texts:
                sharding = read_settings(texts[accelerate.MODULE])["SHARDING"]
                assert (sharding is not None) == (splits > 0)
