"""Tiny instances by what their plan spaces hold: the cases of all tests of whole searches."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from formulations.instance import Instance, Link
from solver.options import SolveOptions
from solver.result import Termination
from solver.search.plan_search import PlanSearch
from tests import small_instances
from tests.random_configs import one_degree, scheduled, slower, zoned
from tests.recorded import as_recorded, digest
from tests.small_instances import random_instance
from tests.stage_degrees import stage_instance, unlike_instance

THREE_STAGES = {"pipeline_parallel": (1, 2, 3)}


def plain(seed: int) -> Instance:
    """At most three stages, so that brute force stays quick; steps of minutes for odd seeds."""
    instance = random_instance(seed).but(search=THREE_STAGES)
    return slower(instance) if seed % 2 else instance


def all_schedules(seed: int) -> Instance:
    """1F1B, GPipe, interleaved and ZB-H1, or interleaved alone; in zones or not."""
    instance = scheduled(random_instance(seed), "interleaved", seed).but(search=THREE_STAGES)
    if seed % 24:
        instance = instance.but(search={"schedule": ("1f1b", "gpipe", "interleaved", "zb-h1")})
    return zoned(instance, seed) if seed % 3 == 0 else instance


def groups(seed: int) -> Instance:
    """Interleaved alone, of as many micro-batches in a group as there are stages, or more."""
    search = THREE_STAGES | {"microbatch_group": ("pp", 3, 4, 5)}
    return scheduled(random_instance(seed), "interleaved", seed).but(search=search)


def experts(seed: int) -> Instance:
    """Experts and sequences that GPUs share, in zones or not."""
    instance = small_instances.expert_instance(seed)
    return zoned(instance, seed) if seed % 4 == 1 else instance


def _drawn(seed: int, rng: Random, name: str, gpus: int, machines: int, batch: int) -> Instance:
    """One or two types, nodes of so many GPUs, of one machine or several; links shared at times."""
    groups = [
        small_instances.nodes_of(
            small_instances.gpu(name, tflops, rng.choice([1.2, 8])),
            gpus_per_node=gpus // machines,
            nodes=machines * (rng.randint(1, 2) if machines > 1 or gpus == 2 else 1),
            intra_node=Link(
                bandwidth_bytes_per_s=rng.choice([1e9, 4e10]),
                latency_s=1e-6,
                shared=seed % 2 > 0,
            ),
            inter_node=Link(bandwidth_bytes_per_s=rng.choice([1e9, 2e10]), latency_s=1e-5),
        ).joined(machines)
        for name, tflops in [("fast", 120), ("slow", 60)][: rng.randint(1, 2)]
    ]
    chain = small_instances.random_layers(rng, small_instances.with_ends(rng.randint(2, 3)))
    work = small_instances.workload(chain, batch, rng.randint(1, 20) * 10**6, rng.random() < 0.5)
    return small_instances.instance_of(
        name, work, groups, (2, 0.9), (4, 0.7), limits=small_instances.ROOMY
    )


def joined(seed: int) -> Instance:
    """Two to eight machines of two GPUs, joined by two; tensor groups and sequences span them."""
    made = _drawn(seed, Random(seed), f"joined_{seed}", gpus=4, machines=2, batch=8)
    attended = {"key_value_bytes": 10**6, "query_bytes": 10**6, "output_tensors": 1}
    runs = [run.but(layer=attended) for run in made.workload.layer_runs]
    more = {"kv_heads": 4, "sequence_length": 64, "flash_attention": True}
    return made.but(
        workload={"layer_runs": tuple(runs), **more},
        search={"context_parallel": (1, 4), "zero": (0, 3), "target": "any", "micro_batch": (1,)},
    )


def sharded(seed: int) -> Instance:
    """Nodes of two or four GPUs, of two types; ZeRO 1 to 3 in one to four groups."""
    rng = Random(seed)
    made = _drawn(seed, rng, f"sharded_{seed}", gpus=rng.choice([2, 4]), machines=1, batch=4)
    search = {"zero": (1, 2, 3), "optimizer_instances": (1, 2), "micro_batch": (1,)}
    search["sync_each_batch"] = (True, False)
    return made.but(search=search, workload={"global_batch": 8 // len(made.cluster.groups)})


SPACES: dict[str, Callable[[int], Instance]] = {
    "plain": plain,
    "schedules": all_schedules,
    "groups": groups,
    "zones": lambda seed: zoned(random_instance(seed), seed).but(search=THREE_STAGES),
    "experts": experts,
    "strategies": small_instances.widened,
    # stages, and devices with several chunks, recompute as little as fits
    "cramped": lambda seed: one_degree(seed, ("1f1b", "gpipe", "zb-h1")[seed % 3]),
    "cramped chunks": lambda seed: one_degree(seed, "interleaved"),
    # groups have degrees and parts of their own
    "unlike groups": lambda seed: unlike_instance(seed).but(search=THREE_STAGES),
    "joined nodes": joined,
    "shard groups": sharded,
    "spot": small_instances.spot_instance,
}


def cases(every: int = 44) -> list[Any]:
    """Parameters name and seed, of which the first of every so many are not slow."""
    return [
        pytest.param(name, seed, marks=[pytest.mark.slow] * (seed % every > 0), id=f"{name} {seed}")
        for name, seed in product(SPACES, range(44))
    ]


def rented(seed: int, prices: tuple[float, ...], longest_s: float | None = None) -> Instance:
    """A random instance that minimises money, its groups at these prices; two stages at most."""
    instance = random_instance(seed)
    of_groups = [*prices[: len(instance.cluster.groups)]]
    return small_instances.with_groups(instance, price_usd_per_hour=of_groups).but(
        objective={"minimize": "cost_per_step"},
        search={"pipeline_parallel": (1, 2)},
        limits={"max_step_time_s": longest_s},
    )


@cache
def searches() -> dict[str, list[object]]:
    """Of whole searches, to gaps and within limits, what they say and how much work they were."""
    seeds = dict.fromkeys(SPACES, 1) | {"schedules": 4, "groups": 4}
    asked = {f"{name} {seed}": SPACES[name](seed) for name, seed in seeds.items()}
    asked |= {f"stages {seed}": stage_instance(seed) for seed in (0, 2)}
    asked |= {f"rented {seed}": rented(seed, (1.0, 0.3), 0.2 * (seed % 3)) for seed in range(3, 7)}
    told = dict[str, list[object]]()
    for n, (name, instance) in enumerate(asked.items()):
        search = PlanSearch(instance, SolveOptions(gap=0.05 * (n % 3 == 2), seed=n))
        first = search.result(Termination.TIME_LIMIT)
        search.first_plans(search.space)
        early = search.incumbents.best, search.incumbents.asked
        search.run(efforts=(10,))
        middle = search.result(Termination.TIME_LIMIT)
        search.close()
        result = search.result(Termination.TIME_LIMIT)
        ways = Counter((record.reason, record.proof) for record in result.log.configs)
        plans = [moment.step_time_s for moment in result.log.history if moment.step_time_s]
        bounds = [
            [known.bound, sum(record.reason == "open" for record in known.log.configs)]
            for known in (first, middle)
        ]
        proved = sorted((str(r.bound_ns), r.reason) for r in result.log.configs)
        outcome = result.status, result.termination, result.objective, result.bound
        work = search.incumbents.asked, early, plans, bounds
        told[name] = [*outcome, sorted(ways.items()), *work, digest([proved, result.plan])]
    return told


def recorded_searches() -> Callable[[], None]:
    """A test that all searches say what is recorded, with as much work."""

    def test() -> None:
        as_recorded("searches", searches())

    return test
