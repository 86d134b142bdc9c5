"""One configuration exactly: the brute-force optimum, to the nanosecond, whatever is free in it."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from formulations.costs.compute import analytic_s
from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.decisions import Decisions, decisions_of
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.instance.profile import Profile, ProfileEntry
from formulations.instance.search import ScheduleName
from formulations.plan import Configuration, Degrees
from formulations.space import PlanSpace, configs
from solver.bounds.largest_share import config_bound_ns
from solver.bounds.stage_choice import StageChoice
from solver.enumeration.engine import ConfigAnswer
from solver.export import flagscale
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from solver.graph.placements import ReplicaClass
from solver.graph.problem import Intervals
from solver.heuristics.config_search import ConfigSearch
from solver.heuristics.local import local_plans
from solver.heuristics.time_tables import TimeTables
from solver.heuristics.trial import PathPool
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.search.driver import solve
from solver.search.engines import Family, model_engine
from solver.search.enumeration import after, enumerate_config, lacks_memory, least_vectors, shares
from solver.simulate import step_time_ns
from solver.verify import verify_document
from solver.verify.bounds import Clock, Prover
from solver.verify.stage_degrees import StageWork, exhaust_stages
from tests import brute_force
from tests.best_plans import check_claims
from tests.costs.test_placement import assert_counted
from tests.hand_made import document_of, result_of
from tests.loop_checks import judge, solve_config
from tests.random_configs import random_optimum_ns, random_tables, scheduled
from tests.seeds import few_and_many, one_each
from tests.small_instances import plain_config, random_instance
from tests.stage_degrees import Bench, meshed_instance, stage_instance
from tests.unlike_degrees import meshed_groups, unlike_configs, unlike_instance, unlike_tables

NO_CUTOFF = 1 << 56
EXACT = SolveOptions(gap=0.0)
Make = Callable[[int], Instance]
both_targets = pytest.mark.parametrize("make", [stage_instance, meshed_instance])


def never() -> bool:
    """Goes on to the end."""
    return False


def closes(schedule: ScheduleName, seed: int, zones: bool, cutoff: int) -> bool:
    """Whether a configuration is closed with its best plan below the cutoff, or that none is."""
    tables, best = random_tables(seed, zones, schedule), random_optimum_ns(seed, zones, schedule)
    answer = enumerate_config(Intervals(tables), cutoff, 0.0, never)
    if best is None or best >= cutoff:
        return answer.complete and answer.plan is None
    return (
        answer.complete
        and answer.plan is not None
        and answer.step_time_ns == best
        and judge(tables, decisions_of(tables.instance, answer.plan)) == best
    )


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("schedule", ["zb-h1", "interleaved"])
@pytest.mark.parametrize("seeds", few_and_many(range(100), 25))
def test_config_equals_brute_force(
    seeds: Sequence[int], schedule: ScheduleName, zones: bool
) -> None:
    """Weight gradients put off and several chunks: shares, zones, memory, blocking sends, ZeRO 1.

    Without a cutoff, and with one at the optimum and one nanosecond above it.
    """
    for seed in seeds:
        assert closes(schedule, seed, zones, NO_CUTOFF), seed
        best = random_optimum_ns(seed, zones, schedule)
        if best is not None:
            assert not lacks_memory(Intervals(random_tables(seed, zones, schedule)))
            assert closes(schedule, seed, zones, best), seed
            assert closes(schedule, seed, zones, best + 1), seed


@pytest.mark.parametrize("seeds", few_and_many(range(200, 320), 12))
def test_engine_equals_brute_force_on_one_config(seeds: Sequence[int]) -> None:
    """Without any cutoff the engine finds the least step time of the config, or that none fits."""
    for seed in seeds:
        instance = random_instance(seed).but(search={"pipeline_parallel": (1, 2, 3)})
        if space := list(configs(instance)):
            tables = build_tables(instance, space[seed * 7919 % len(space)])
            answer = enumerate_config(Intervals(tables), NO_CUTOFF, 0.0, never)
            assert (answer.complete, answer.step_time_ns) == (True, brute_force.optimum_ns(tables))


def test_bug_large_shares_were_charged_weight_gradients_that_their_path_misses() -> None:
    """ZB-H1, uneven shares: the best plan, with two micro-batches on a replica, was refuted."""
    best = random_optimum_ns(28, schedule="zb-h1")
    assert best is not None
    assert closes("zb-h1", 28, False, best + 1)


def test_bug_first_split_of_chunks_was_not_held_against_memory() -> None:
    """Two chunks fit a device each on its own, and not together: that was returned as a plan."""
    assert closes("interleaved", 4, False, NO_CUTOFF)


def test_bug_interleaved_configs_had_the_bound_of_configs_without_chunks() -> None:
    """A configuration that no plan of fewer, longer stages fits is not therefore empty."""
    known = {seed: random_optimum_ns(seed, schedule="interleaved") for seed in range(12)}
    found = {seed: best for seed, best in known.items() if best is not None}
    assert found
    for seed, best in found.items():
        tables = random_tables(seed, schedule="interleaved")
        assert config_bound_ns(Intervals(tables), NO_CUTOFF) <= best


def test_bug_local_search_did_not_hold_chunks_against_memory() -> None:
    """Nothing fits: a plan whose two chunks fit a device each on its own was called optimal."""
    assert solve(scheduled(random_instance(21), "interleaved", 21)).plan is None


# Shares of micro-batches, and efforts


def test_least_vectors_just_cover_all_micro_batches() -> None:
    """Held against all vectors: those that cover the total, and no longer with one less anywhere.

    But where a class has one micro-batch each, which is the least.
    """
    for counts, most, total in (((2, 1), (5, 9), 10), ((1, 1, 2), (4, 3, 4), 9), ((3,), (2,), 6)):
        expected = [
            list(vector)
            for vector in product(*(range(1, m + 1) for m in most))
            if sum(n * v for n, v in zip(counts, vector, strict=True)) - total >= 0
            and all(
                v == 1 or sum(n * v for n, v in zip(counts, vector, strict=True)) - total < n
                for n, v in zip(counts, vector, strict=True)
            )
        ]
        assert sorted(least_vectors(counts, most, total)) == sorted(expected)
    assert not list(least_vectors((2, 1), (0, 9), 3))


def test_the_surplus_is_taken_off_again() -> None:
    """Two replicas of four and one of two make ten; eight are run: (3, 3, 2)."""
    classes = [ReplicaClass((0, 2), (0,), ()), ReplicaClass((1,), (1,), ())]
    assert shares(classes, (4, 2), 10) == (4, 2, 4)
    assert shares(classes, (4, 2), 8) == (3, 2, 3)


def test_an_effort_is_a_number_of_questions() -> None:
    """It stops at the third one, or when it is told to."""
    stop = after(2, never)
    assert [stop(), stop(), stop()] == [False, False, True]
    assert after(9, lambda: True)()
    assert after(None, never) is never


def test_a_config_lacks_memory_where_the_roomiest_gpus_do() -> None:
    """With no memory at all it does; with that of the random cases that have a plan it does not."""
    for seed in range(0, 40, 8):
        tables = random_tables(seed)
        assert lacks_memory(Intervals(replace(tables, capacity_bytes=0 * tables.capacity_bytes)))
        if random_optimum_ns(seed) is not None:
            assert not lacks_memory(Intervals(tables))


# Node groups with degrees of their own


@pytest.mark.parametrize("seeds", few_and_many(range(200), 25))
def test_placement_equals_the_count_from_slots(seeds: Sequence[int]) -> None:
    """Every cost of every order is what slots of unlike width, lanes and parts give."""
    for seed in seeds:
        if tables := unlike_tables(seed):
            assert_counted(tables, brute_force.all_orders(tables))


@pytest.mark.parametrize("seeds", few_and_many(range(300), 60))
def test_search_and_models_equal_brute_force(seeds: Sequence[int]) -> None:
    """The best plan of a config by enumeration, CP-SAT and MILP; and the verifier recounts it."""
    for seed in seeds:
        tables = unlike_tables(seed)
        if tables is None:
            continue
        best = brute_force.optimum_ns(tables)
        found = enumerate_config(Intervals(tables), NO_CUTOFF, 0.0, never)
        assert (found.step_time_ns, found.complete) == (best, True), seed
        if found.plan is not None:
            costs = plan_costs(tables.instance, found.plan)
            assert step_time_ns(costs) == best, seed
            assert (
                plan_costs(tables.instance, found.plan).memory_bytes == costs.memory_bytes
            ).all()
        for method in ("cpsat", "milp"):
            assert solve_config(tables, model_engine(method)).step_time_ns == best, seed


@pytest.mark.parametrize("seeds", few_and_many(range(150), 15))
def test_bounds_never_exceed_the_optimum(seeds: Sequence[int]) -> None:
    """Of the search and of the verifier, which also finds no plan below it."""
    for seed in seeds:
        tables = unlike_tables(seed)
        best = None if tables is None else brute_force.optimum_ns(tables)
        if tables is None or best is None:
            continue
        known = TimeTables(tables.instance)
        bounds = [known.forms([tables.config])[0].bound_ns, *known.packed_ns([tables.config])]
        bounds.append(config_bound_ns(Intervals(tables), NO_CUTOFF))
        assert max(bounds) <= best, seed


@pytest.mark.parametrize("seeds", few_and_many(range(60), 20))
def test_flagscale_has_the_best_order_that_it_runs(seeds: Sequence[int]) -> None:
    """By search, models and verifier, which finds no better one: of configs with orders left out.

    Without MILP in zones, where HiGHS loses an optimum of 0.12 s for any target: seed 35.
    """
    for seed in seeds:
        instance, rng = meshed_groups(seed), random.Random(seed)
        zones = instance.cluster.has_zones
        methods: tuple[Family, ...] = ("cpsat",) if zones else ("cpsat", "milp")
        space = unlike_configs(instance)
        for config in rng.sample(space, min(2, len(space))):
            tables = build_tables(instance, config)
            best = brute_force.optimum_ns(tables)
            answer = enumerate_config(Intervals(tables), NO_CUTOFF, 0.0, never)
            assert (answer.step_time_ns, answer.complete) == (best, True), seed
            for method in methods:
                assert solve_config(tables, model_engine(method)).step_time_ns == best, seed
            check_claims(tables, best)


@pytest.mark.parametrize("seeds", few_and_many(range(60), 20))
def test_first_plans_of_flagscale_have_orders_that_it_runs(seeds: Sequence[int]) -> None:
    """A local search begins where it can, and goes on among such orders."""
    for seed in seeds:
        instance = meshed_groups(seed)
        for config in unlike_configs(instance)[:8]:
            tables = build_tables(instance, config)
            orders = brute_force.all_orders(tables)
            search = ConfigSearch(tables, PathPool())
            assert search.first_orders
            assert {*search.first_orders} <= {*orders}, seed
            for plan, _ in local_plans(instance, [config], seed):
                nodes = instance.cluster.node_groups
                assert tuple(nodes[node] for node in plan.node_order) in orders, seed


#: Two nodes that are fast with tensor groups of two GPUs, and one that is with two parts.
ENDS = """
name: ends
workload:
  sizes: {hidden_size: 512, layers: 3, heads: 4, vocabulary_size: 500, rotary_positions: true,
    tied_embeddings: true}
  sequence_length: 128
  global_batch: 8
cluster:
  groups:
    - {name: a, gpu: {name: G0, peak: {bf16: 100 TFLOP/s}, compute_capability: 8.0, memory: 40 GiB,
        memory_bandwidth: 1000 GB/s, link: {bandwidth: 100 GB/s, latency: 1 us}},
       gpus_per_node: 2, nodes: 2, inter_node: 100 Gbit/s}
    - {name: b, gpu: {name: G1, peak: {bf16: 100 TFLOP/s}, compute_capability: 8.0, memory: 40 GiB,
        memory_bandwidth: 1000 GB/s, link: {bandwidth: 100 GB/s, latency: 1 us}},
       gpus_per_node: 2, nodes: 1, inter_node: 100 Gbit/s}
profile:
  source: made
  includes_tensor_parallel_traffic: true
  sequence_parallel: true
  times_ms:
    embedding: &times
      G0: {1: {1: [50, 50], 2: [50, 50]}, 2: {1: [5, 5], 2: [5, 5]}}
      G1: {1: {1: [5, 5], 2: [5, 5]}, 2: {1: [50, 50], 2: [50, 50]}}
    block: *times
    head: *times
search: {target: flagscale, degrees: per_group, micro_batch: [2], pipeline_parallel: [3],
  tensor_parallel: [1, 2], idle_nodes: false}
"""


def test_bug_rules_of_the_outer_stages_were_asked_of_all_groups() -> None:
    """Tied embeddings lie on the two nodes alike, the other one between: 110 ms, not 420."""
    instance = parse_instance(ENDS, "x.yaml", Path())
    result = solve(instance, EXACT)
    report = verify_document(build_document(result, EXACT))
    assert report.complete, report.problems
    assert result.plan is not None
    assert result.plan.node_order in ((0, 2, 1), (1, 2, 0))
    # 4 micro-batches: all passes of the stage with the head, 5 ms a layer, and the way there
    assert 110 <= (result.step_time_ns or 0) / 1e6 < 111
    job = Job(instance, result.plan)
    EXPORTERS["flagscale"].check(job, EXPORTERS["flagscale"].files(job))


def test_verifier_refuses_an_order_that_flagscale_does_not_run() -> None:
    """The same plan with unlike nodes at the ends."""
    instance = parse_instance(ENDS, "x.yaml", Path())
    plan = solve(instance, EXACT).plan
    assert plan is not None
    swapped = Decisions((0, 0, 1), (0, 2, 3, 5), (4,)).plan(build_tables(instance, plan.config))
    problems = verify_document(document_of(result_of(instance, swapped))).problems
    assert any(line.startswith("node_order: found ") for line in problems)


def test_bug_single_row_that_may_be_negative_was_taken_for_a_maximum() -> None:
    """Rings of one group alone: the tail's largest value was too small for the best plan."""
    tables = unlike_tables(45)
    assert tables is not None
    best = brute_force.optimum_ns(tables)
    assert solve_config(tables, model_engine("milp")).step_time_ns == best


def permuted(instance: Instance) -> Instance:
    """The groups in reverse, under other names."""
    groups = tuple(
        group.but(name=f"z{j}") for j, group in enumerate(reversed(instance.cluster.groups))
    )
    return instance.but(cluster={"groups": groups})


def super_gpus(instance: Instance, parts: int) -> Instance:
    """Nodes of the second group as one GPU that is as fast on b as `parts` of them on b / parts.

    By a profile; with the memory of one, as each keeps a part of the activations.
    """
    first, second = instance.cluster.groups
    entries = [
        ProfileEntry(
            kind=run.layer.kind,
            gpu=group.gpu.name,
            tp=1,
            micro_batch=b,
            forward_s=passes.forward,
            backward_s=passes.backward,
        )
        for group, shares in ((first, 1), (second, parts))
        for run in instance.workload.layer_runs
        for b in (2, 4)
        for passes in [analytic_s(run.layer, group, instance.workload.precision, 1, b // shares)]
    ]
    profile = Profile(source="test", includes_tensor_parallel_traffic=True, entries=tuple(entries))
    alone = second.but(gpus_per_node=1)
    cluster = instance.cluster.but(groups=(first, alone))
    return instance.but(cluster=cluster, search={"degrees": "uniform"}, profile=profile)


@pytest.mark.parametrize("seed", one_each(range(40), 20))
def test_super_gpus_have_the_same_optimum_up_to_the_sync_among_parts(seed: int) -> None:
    """Nodes of two GPUs in two parts, beside nodes of GPUs that are twice as fast on half as much.

    Without anything to synchronise, and with room for everything.
    """
    one = unlike_instance(4 * seed)
    groups = tuple(
        group.but(
            gpus_per_node=size,
            nodes=1 + j,
            gpu={"memory_bytes": 1 << 44},
            intra_node={"latency_s": 0},
            inter_node=one.cluster.groups[0].inter_node,
        )
        for j, (group, size) in enumerate(zip(one.cluster.groups, (1, 2), strict=True))
    )
    cluster = one.cluster.but(groups=groups, zone_link=None)
    chosen = {"tensor_parallel": (1,), "zero": (0,), "recompute": ("none",), "idle_nodes": False}
    search = one.search.model_copy(update=chosen)
    runs = tuple(
        run.but(layer={"kind": f"layer {i}"}) for i, run in enumerate(one.workload.layer_runs)
    )
    made = one.but(cluster=cluster, search=search, workload={"layer_runs": runs})
    emulated = super_gpus(made, 2)
    found = []
    for instance in (made, emulated):
        best = None
        for config in configs(instance):
            if instance is made and [own.parts for own in config.degrees] != [1, 2]:
                continue
            tables = build_tables(instance, config)
            still = replace(
                tables,
                gradient_bytes=0 * tables.gradient_bytes,
                optimizer_ns=0 * tables.optimizer_ns,
                embedding_bytes=(0, 0),
            )
            answer = enumerate_config(Intervals(still), NO_CUTOFF, 0.0, never)
            times = [ns for ns in (best, answer.step_time_ns) if ns is not None]
            best = min(times, default=None)
        found.append(best)
    assert found[0] == found[1]


@pytest.mark.parametrize("seeds", few_and_many(range(100), 25))
def test_bug_parts_sent_one_copy_of_the_tied_gradients(seeds: Sequence[int]) -> None:
    """Two parts of every slot cost what two replicas do on the same GPUs, embeddings tied or not.

    Nodes hold whole stages, so that rings of both stay inside.
    """
    for seed in seeds:
        one = unlike_instance(seed)
        groups = tuple(g.but(gpus_per_node=2) for g in one.cluster.groups)
        instance = one.but(cluster={"groups": groups})
        nodes_used = tuple(group.nodes for group in groups)
        halves = (Degrees(tp=1, parts=2),) * len(groups)
        parts = plain_config(nodes_used, degrees=halves, pp=sum(nodes_used), micro_batch=4, zero=1)
        replicas = {"degrees": (Degrees(tp=1),) * len(groups), "dp": 2, "micro_batch": 2}
        tables = [build_tables(instance, s) for s in (parts, parts.model_copy(update=replicas))]
        best = [enumerate_config(Intervals(own), NO_CUTOFF, 0.0, never) for own in tables]
        assert best[0].step_time_ns == best[1].step_time_ns, seed


def test_groups_of_equal_machines_are_not_told_apart() -> None:
    """Of two equal groups of one node each the first has no larger degrees than the second."""
    one = unlike_instance(0)
    fast = one.cluster.groups[0].but(gpus_per_node=2, nodes=1)
    groups = (fast, fast.but(name="twin"))
    apart = one.but(cluster={"groups": groups})
    listed = list(configs(apart))
    assert all(a.tp * 100 + a.parts <= b.tp * 100 + b.parts for a, b in (s.degrees for s in listed))
    assert set(PlanSpace(apart).configs_of((1, 1))) == set(listed)
    assert len(set(listed)) == len(listed)


# Stages with degrees of their own


def small_configs(instance: Instance) -> list[Configuration]:
    """Few enough stages and replicas to try everything."""
    return [s for s in configs(instance) if s.per_stage and s.pp <= 4 and s.dp <= 4]


def answer(instance: Instance, config: Configuration) -> ConfigAnswer:
    """The best plan of a configuration."""
    intervals = Intervals(TimeTables(instance).costs(config))
    return enumerate_config(intervals, NO_CUTOFF, 0.0, never)


@both_targets
@pytest.mark.parametrize("seeds", few_and_many(range(90), 45))
def test_search_equals_brute_force(seeds: Sequence[int], make: Make) -> None:
    """The best plan of every config; bounds are no higher, and the verifier finds none below it."""
    for seed in seeds:
        instance = make(seed)
        prover, choice = Prover(PlanSpace(instance)), StageChoice(instance)
        work = StageWork(prover)
        for config in small_configs(instance):
            best = Bench(instance, config).optimum_ns()
            found = answer(instance, config)
            assert (found.step_time_ns, found.complete) == (best, True), (seed, config)
            if best is None or found.plan is None:
                continue
            bound = choice.bound_ns(config)
            assert max(bound, work.bound_ns(config)) <= best, (seed, config)
            assert step_time_ns(plan_costs(instance, found.plan)) == best, (seed, config)
            below = exhaust_stages(prover, config, best, Clock())
            above = exhaust_stages(prover, config, best + 1, Clock())
            assert below is not None, (seed, config)
            assert above is not None, (seed, config)
            assert (below.plan, above.step_time_ns) == (None, best), (seed, config)


@pytest.mark.parametrize("seed", one_each(range(40), 20))
def test_plans_for_flagscale_are_meshes_that_start(seed: int) -> None:
    """Stages of unlike degrees in one node too: each mesh is a run of ranks."""
    instance = meshed_instance(seed)
    for plan in (answer(instance, config).plan for config in small_configs(instance)):
        if plan is not None:
            job = Job(instance, plan)
            assert not list(EXPORTERS["flagscale"].faults(job)), (seed, plan)
            flagscale.check(job, flagscale.files(job))
