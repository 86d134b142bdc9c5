"""Drawn tables, split problems and configurations of every kind, for recorded figures."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

from bench.splits import chain_problem
from formulations.costs.compute import LayerTimes, TimeColumns
from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance
from formulations.instance.search import ScheduleName
from formulations.plan import Configuration
from formulations.space import configs
from solver.enumeration.engine import solve_split
from solver.graph.all_orders import order_graph
from solver.graph.edges import Layers, build_layers, has_split
from solver.graph.placements import fixed_order, replica_classes
from solver.graph.problem import Intervals, SplitProblem
from solver.heuristics.node_orders import node_orders
from solver.heuristics.time_tables import TimeTables
from tests import brute_force, random_configs, recursion
from tests.random_configs import crowded_instance, scheduled, unlike_replicas, zoned
from tests.recorded import digest, summary
from tests.small_instances import expert_instance, random_instance, widened, with_groups
from tests.stage_degrees import meshed_instance, stage_instance, unlike_instance, unlike_tables

NO_CUTOFF = 1 << 50


def even_tables(seed: int, schedule: ScheduleName | None = None) -> CostTables | None:
    """A random configuration with even shares on nodes of two types and sizes, if there is one."""
    instance = random_configs.crowded_instance(seed) if seed % 2 else random_instance(seed)
    instance = with_groups(instance, nodes=2) if seed % 2 else instance
    instance = instance.but(search={"micro_batches": "even"})
    instance = instance if schedule is None else random_configs.scheduled(instance, schedule, seed)
    config = random_configs.random_config(instance, seed, most_stages=4)
    return build_tables(instance, config) if config else None


@cache
def drawn_tables() -> dict[str, CostTables]:
    """Of every schedule, in zones, over extreme links, short of memory, with unlike degrees."""
    drawn: dict[str, CostTables | None] = {
        f"{schedule or 'plain'}{' zones' * zones} {seed}": random_configs.random_tables(
            seed, zones, schedule
        )
        for schedule in random_configs.WITH_NEW
        for zones in (False, True)
        for seed in range(3)
    }
    for seed in range(6):
        drawn[f"even {seed}"] = even_tables(seed, ("zb-h1", None)[seed % 2])
        drawn[f"extreme {seed}"] = random_configs.extreme_tables(seed)
        drawn[f"cramped {seed}"] = random_configs.cramped_tables(
            seed, ("1f1b", "zb-h1", "interleaved")[seed % 3]
        )
        drawn[f"unlike groups {seed}"] = unlike_tables(seed)
    return {name: made for name, made in drawn.items() if made is not None}


@cache
def staged_tables() -> dict[str, CostTables]:
    """Of configurations whose stages have degrees of their own."""
    drawn = {}
    for make in (stage_instance, meshed_instance):
        for seed in range(4):
            times = TimeTables(instance := make(seed))
            staged = [config for config in configs(instance) if config.per_stage and config.pp < 5]
            for n, config in enumerate(staged[:: max(1, len(staged) // 4)]):
                drawn[f"{make.__name__} {seed}.{n}"] = times.costs(config)
    return drawn


def random_chain(seed: int) -> SplitProblem:
    """Up to 9 layers on up to 5 stages, transfers unlike in the two directions."""
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 6))
    layers = int(rng.integers(p, 10))
    return chain_problem(
        "gpipe" if seed % 3 == 0 else "1f1b",
        int(rng.integers(1, 9)),
        rng.integers(1, 40, (p, layers)),
        rng.integers(1, 80, (p, layers)),
        rng.integers(0, 40, p - 1).tolist(),
        rng.integers(0, 40, p - 1).tolist(),
        blocking=seed % 4 == 0,
    )


def long_chain(seed: int) -> SplitProblem:
    """12 like layers on 4 stages with long transfers, and many micro-batches: windows matter."""
    rng = np.random.default_rng(seed)
    forward = np.outer(rng.integers(1, 4, 4), rng.integers(8, 12, 12))
    send = rng.integers(0, 30, 3).tolist()
    return chain_problem("1f1b", int(rng.integers(8, 30)), forward, 2 * forward, send, send)


def few_micro_batches(seed: int) -> SplitProblem:
    """Up to 7 stages and about as many micro-batches: early stages only fill and drain."""
    rng = np.random.default_rng(seed)
    p = int(rng.integers(3, 8))
    forward = np.outer(rng.integers(1, 5, p), rng.integers(30_000, 120_000, p + 4))
    backward = forward * rng.choice([1, 2, 3], forward.shape)
    send = rng.integers(0, rng.choice([20_000, 400_000]), p - 1).tolist()
    m = int(rng.integers(max(2, p - 3), p + 6))
    return chain_problem("1f1b", m, forward, backward, send, send)


@cache
def problems() -> dict[str, SplitProblem]:
    """Chains, all node orders at once, and a fixed order each."""
    made = {f"chain {seed}": random_chain(seed) for seed in range(12)}
    made |= {f"long {seed}": long_chain(seed) for seed in range(3)}
    made |= {f"filling {seed}": few_micro_batches(seed) for seed in range(4)}
    for name, costs in drawn_tables().items():
        intervals, placer, config = Intervals(costs), Placer(costs), costs.config
        share = -(-costs.num_micro_batches // config.dp)
        free = order_graph(intervals, placer, share, costs.instance.cluster.has_zones)
        if free is not None and free.stages and config.vpp == 1:
            made[f"{name} all orders"] = free
        order = list(node_orders(config.nodes_used, 20))[-1]
        placement = placer.costs(order)
        classes = replica_classes(placement, config.dp)
        made[f"{name} order"] = fixed_order(intervals, placement, classes, [share] * len(classes))
    return made


def problems_with_edges(every: int = 1) -> Iterator[tuple[str, SplitProblem, Layers]]:
    """Those of `problems` that have a split, of so many one, each with its edges."""
    for name, problem in list(problems().items())[::every]:
        if has_split(problem):
            yield name, problem, build_layers(problem, NO_CUTOFF)


@cache
def best_ns(name: str) -> int | None:
    return solve_split(problems()[name], NO_CUTOFF).step_time_ns


class Questions:
    """A stop that never says so; number: how often it was asked, a measure of work."""

    number = 0

    def __call__(self) -> bool:
        self.number += 1
        return False


def figures(problem: SplitProblem) -> str:
    return digest(summary(replace(problem, memory=None)))


@cache
def uneven_tables(seed: int, single: bool = True) -> CostTables:
    """Of a configuration of two replicas with unlike shares; every fifth with ZB-H1."""
    instance = random_configs.unlike_replicas(seed, single)
    instance = random_configs.scheduled(instance, "zb-h1", seed) if seed % 5 == 1 else instance
    (config, *_) = (config for config in configs(instance) if config.zero == seed % 2)
    return build_tables(instance, config)


@cache
def uneven_optimum_ns(seed: int, single: bool = True) -> int | None:
    return brute_force.optimum_ns(uneven_tables(seed, single))


def chain_time(problem: SplitProblem, split: tuple[int, ...]) -> int:
    """Step time of one split of a chain, by the witness."""
    stages = list(enumerate(pairwise(split)))
    ends = recursion.stage_ends(
        problem.schedule,
        problem.micro_batches[0],
        [int(problem.forward[k, a, b]) for k, (a, b) in stages],
        [int(problem.backward[k, a, b]) for k, (a, b) in stages],
        [int(stage.send[0, 0]) for stage in problem.stages[1:]],
        problem.blocking,
        [int(stage.send_back[0, 0]) for stage in problem.stages[1:]],
    )
    return max(ends)


Drawn = tuple[Instance, list[Configuration], list[LayerTimes]]


def _three_types(seed: int) -> Instance:
    """Unlike replicas on three groups of nodes, even shares for odd seeds."""
    instance = unlike_replicas(seed, single=False).but(search={"data_parallel": None})
    shares = ("uneven", "even")[seed % 2]
    return instance.but(search={"micro_batches": shares, "pipeline_parallel": None})


def _deep(seed: int) -> Instance:
    """Two types on eight nodes of up to eight GPUs, and many blocks; in zones or not."""
    sizes = ([4, 8], [8, 2], [6, 4], [4, 4])[seed % 4]
    instance = with_groups(crowded_instance(seed), nodes=4, gpus_per_node=sizes)
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
