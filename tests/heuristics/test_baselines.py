"""Plans of the rules of thumb: feasible, judged by the simulator, and as the rule says."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import plan_costs, split_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import even_shares
from formulations.instance import Cluster, Instance, Limits, Link, Objective, SearchSpace
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import build_workload
from formulations.plan import Configuration
from formulations.space import configs
from solver.heuristics.balance import Balance, Split, SplitSpace, order_balance
from solver.heuristics.baselines import (
    Found,
    equal_blocks,
    equal_chunks_plan,
    equal_split_plan,
    even_split,
    megatron_rule,
    minmax_of,
    minmax_plan,
    moved,
)
from solver.heuristics.node_orders import Order, node_orders
from solver.heuristics.time_tables import TimeTables
from solver.simulate import step_time_ns
from tests.chain_instances import FAST, SLOW, all_splits, chain_instance, chain_tables
from tests.seeds import few_and_many, one_each
from tests.small_instances import (
    gpu,
    instance_of,
    layer,
    nodes_of,
    random_instance,
    with_ends,
    workload,
)

Baseline = Callable[[Instance, Iterable[Configuration]], Found]
#: Times of min-max splits are round, see `round_times`.
MS = 1_000_000
ROUND = pytest.mark.usefixtures("round_times")

BASELINES: list[Baseline] = [minmax_plan, equal_split_plan, megatron_rule]


@pytest.mark.parametrize("baseline", BASELINES)
def test_plans_fit_and_their_time_is_the_simulated_one(baseline: Baseline) -> None:
    """Tiny instances: memory of every GPU, blocks of every stage, micro-batches, step time."""
    found = 0
    for seed in range(16):
        instance = random_instance(seed)
        plan_and_time = baseline(instance, configs(instance))
        if plan_and_time is None:
            continue
        plan, time_ns = plan_and_time
        costs = plan_costs(instance, plan)
        assert (costs.memory_bytes <= costs.limit_bytes).all()
        assert step_time_ns(costs) == time_ns
        batch = sum(costs.micro_batches) * plan.config.micro_batch
        assert batch == instance.workload.global_batch
        assert plan.config in set(configs(instance))
        found += 1
    assert found > 7


def every_minmax_time(instance: Instance) -> list[int]:
    """Step times of the min-max splits of all configurations and orders, none left out."""
    times = []
    for config in configs(instance):
        tables = build_tables(instance, config)
        shares = even_shares(tables)
        for order in node_orders(config.nodes_used, 64):
            split = minmax_of(order_balance(SplitSpace(tables), order, shares))
            if split:
                costs = split_costs(tables, Placer(tables).costs(order), split, shares)
                times.append(step_time_ns(costs))
    return times


@pytest.mark.parametrize("seed", one_each(range(25), 5))
def test_leaving_out_hopeless_candidates_loses_nothing(seed: int) -> None:
    """The min-max plan is the best over all configurations and orders, each simulated."""
    instance = random_instance(seed)
    found = minmax_plan(instance, configs(instance))
    assert (found and found[1]) == min(every_minmax_time(instance), default=None)


def test_equal_split_does_not_move_layers() -> None:
    """Fast and slow node: min-max gives the fast one more, the equal split does not."""
    search = SearchSpace(pipeline_parallel=(2,), micro_batch=(1,), recompute=("none",))
    instance = chain_instance([2] * 6, [FAST, SLOW], search)
    minmax, equal = (find(instance, configs(instance)) for find in BASELINES[:2])
    assert minmax is not None
    assert equal is not None
    sizes = [b - a for a, b in (stage.layers for stage in equal[0].replicas[0].stages)]
    assert sizes == [4, 4]
    assert minmax[1] < equal[1]


def test_cheapest_plan_is_chosen_where_money_is_minimised() -> None:
    """One of two nodes at half the rent is slower but cheaper than both."""
    instance = chain_instance([1, 1], [SLOW, SLOW])
    cheap = instance.but(objective=Objective(minimize="cost_per_step"))
    fastest, cheapest = (minmax_plan(one, configs(one)) for one in (instance, cheap))
    assert fastest is not None
    assert cheapest is not None
    assert sum(fastest[0].config.nodes_used) == 2
    assert sum(cheapest[0].config.nodes_used) == 1


def test_plans_beyond_the_time_limit_are_refused() -> None:
    """Just inside and just outside the step time of the best plan."""
    instance = chain_instance([1, 1], [SLOW, SLOW])
    found = minmax_plan(instance, configs(instance))
    assert found is not None
    best_s = found[1] / 1e9
    for limit_s, expected in ((best_s, found), (best_s * 0.999, None)):
        limited = instance.but(limits=Limits(max_step_time_s=limit_s))
        assert minmax_plan(limited, configs(limited)) == expected


def test_plans_beyond_the_money_limit_are_refused() -> None:
    """Just inside and just outside the cost of the only plan: 1 USD/h for its step time."""
    instance = chain_instance([1, 1], [SLOW])
    found = minmax_plan(instance, configs(instance))
    assert found is not None
    cost_usd = found[1] / 1e9 / 3600
    for limit_usd, expected in ((cost_usd * 1.001, found), (cost_usd * 0.999, None)):
        limited = instance.but(limits=Limits(max_cost_usd_per_step=limit_usd))
        assert minmax_plan(limited, configs(limited)) == expected


def test_search_ends_when_told_to() -> None:
    """Stopped at once, there is no plan."""
    instance = chain_instance([1, 1], [SLOW])
    assert minmax_plan(instance, configs(instance), stop=lambda: True) is None


def test_equal_blocks_keeps_the_ends_with_their_blocks() -> None:
    """4 blocks on 2 stages: embedding + 2 and 2 + head."""
    assert equal_blocks(chain_tables(chain_instance([1] * 4, [SLOW] * 2))) == (0, 3, 6)


def test_equal_blocks_needs_a_divisor_of_their_number() -> None:
    """5 blocks are not 2 equal stages."""
    assert equal_blocks(chain_tables(chain_instance([1] * 5, [SLOW] * 2))) is None


def megatron_instance(memory_gib: float, parameters: int, blocks: int = 4) -> Instance:
    """2 nodes of 2 GPUs, equal blocks; 18 bytes per parameter beside a reserve of 1 GiB."""
    kinds = with_ends(blocks)
    layers = [layer(kind, 1, parameters if kind == "block" else 0, 1000) for kind in kinds]
    one = gpu("gpu", 2.0, memory_gib)
    link = Link(bandwidth_bytes_per_s=1e9, latency_s=0)
    group = nodes_of(one, name="node", gpus_per_node=2, nodes=2, intra_node=link, inter_node=link)
    work = workload(layers, 8, 1000, tied=False)
    return instance_of("megatron", work, [group], search=SearchSpace(micro_batch=(1, 2)))


@pytest.mark.parametrize(
    ("memory_gib", "degrees"),
    [
        (9.0, (1, 4, 1)),  # 4 blocks of 10^8 parameters: 7.2 GB = 6.7 GiB on one GPU
        (5.0, (2, 2, 1)),  # 3.35 GiB on each of 2: tensor parallel inside a node
        (3.0, (2, 1, 2)),  # 1.68 GiB on each of 4: then a pipeline of 2 nodes
    ],
)
def test_megatron_grows_tensor_then_pipeline_until_it_fits(
    memory_gib: float, degrees: tuple[int, int, int]
) -> None:
    """(tp, dp, pp): what the model does not need is left for data parallelism."""
    instance = megatron_instance(memory_gib, 10**8)
    found = megatron_rule(instance, configs(instance))
    assert found is not None
    config = found[0].config
    assert (config.widest_tp, config.dp, config.pp) == degrees
    recomputed = {stage.recomputed.way for one in found[0].replicas for stage in one.stages}
    assert recomputed == {"none"}


def test_megatron_finds_nothing_where_all_gpus_together_are_too_small() -> None:
    """1.68 GiB and the reserve of 1 GiB do not fit 2 GiB."""
    instance = megatron_instance(2.0, 10**8)
    assert megatron_rule(instance, configs(instance)) is None


@pytest.mark.parametrize(("memory_gib", "zero"), [(3.6, 0), (3.4, 1)])
def test_megatron_splits_the_optimizer_only_if_nothing_else_fits(
    memory_gib: float, zero: int
) -> None:
    """3 blocks of 10^8 parameters cannot be cut in 2 stages; tp = 2 and dp = 2 need 2.51 GiB.

    That is 18 bytes for 1.5 * 10^8 parameters. With the state split over 2 replicas 12 bytes,
    1.68 GiB. The reserve is 1 GiB. (tp = 1 and dp = 4 need 9 bytes for all: 2.51 GiB too.)
    """
    instance = megatron_instance(memory_gib, 10**8, blocks=3)
    found = megatron_rule(instance, configs(instance))
    assert found is not None
    config = found[0].config
    assert (config.zero, config.widest_tp, config.dp, config.pp) == (zero, 2, 2, 1)


def test_megatron_leaves_nodes_out_where_all_of_them_cannot_divide_the_batch() -> None:
    """3 nodes of one GPU, 4 blocks, 4 sequences: neither 3 replicas nor 3 stages; 2 do."""
    instance = chain_instance([1] * 4, [FAST, SLOW, SLOW], SearchSpace(micro_batch=(1, 2)))
    found = megatron_rule(instance, configs(instance))
    assert found is not None
    assert found[0].config.nodes_used == (1, 1, 0)
    assert (found[0].config.dp, found[0].config.pp) == (2, 1)


def test_megatron_chooses_the_micro_batch_by_its_equation() -> None:
    """(m + p - 1) (t_f + t_b) with p = 2 and 8 sequences: 9 t for b = 1, 5 * 2 t for b = 2."""
    instance = megatron_instance(3.0, 10**8)
    found = megatron_rule(instance, configs(instance))
    assert found is not None
    assert found[0].config.micro_batch == 1


#: Narayanan et al. 2021, table 1: parameters, heads, hidden size, layers, t, p, GPUs, batch.
PUBLISHED = [
    ("1.7B", 24, 2304, 24, 1, 1, 32, 512),
    ("39.1B", 64, 8192, 48, 8, 2, 512, 1536),
    ("145.6B", 96, 12288, 80, 8, 8, 1536, 2304),
]


@pytest.mark.parametrize("row", PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_megatron_rule_gives_the_published_degrees(
    row: tuple[str, int, int, int, int, int, int, int],
) -> None:
    """A100 of 80 GB in nodes of 8, full recomputation; the distributed optimizer is not needed."""
    name, heads, hidden, blocks, tp, pp, gpus, batch = row
    sizes = TransformerSizes(
        hidden_size=hidden,
        layers=blocks,
        heads=heads,
        vocabulary_size=51200,
        learned_positions=2048,
    )
    gpt = build_workload(sizes, name=name, source="test", sequence_length=2048, global_batch=batch)
    link = Link(bandwidth_bytes_per_s=1e11, latency_s=0)
    a100 = gpu("A100-80", 312, 80).but(peak_flops={gpt.precision: 3.12e14})
    group = nodes_of(
        a100, name="dgx", gpus_per_node=8, nodes=gpus // 8, intra_node=link, inter_node=link
    )
    search = SearchSpace(recompute=("full",), idle_nodes=False, micro_batch=(1, 2, 4))
    cluster = Cluster(groups=(group,))
    instance = Instance(name=name, source="test", workload=gpt, cluster=cluster, search=search)
    found = megatron_rule(instance, configs(instance))
    assert found is not None
    assert (found[0].config.widest_tp, found[0].config.pp) == (tp, pp)


def test_equal_chunks_fit_and_their_time_is_the_simulated_one() -> None:
    """Of several chunks per device, equally many blocks on each."""
    found = 0
    for seed in range(30):
        plain = random_instance(seed)
        changed = {"schedule": ("interleaved",), "pipeline_parallel": (2,)}
        instance = plain.but(search=changed)
        plan_and_time = equal_chunks_plan(configs(instance), TimeTables(instance), lambda: False)
        if plan_and_time is None:
            continue
        plan, time_ns = plan_and_time
        costs = plan_costs(instance, plan)
        assert (costs.memory_bytes <= costs.limit_bytes).all()
        assert step_time_ns(costs) == time_ns
        blocks = [layer.is_block for layer in instance.workload.layers]
        assert len({sum(blocks[slice(*stage.layers)]) for stage in plan.replicas[0].stages}) == 1
        found += 1
    assert found


def split_of(tables: CostTables) -> Split | None:
    """Min-max split with the nodes in the order listed."""
    order = range(len(tables.config.nodes_used))
    return minmax_of(order_balance(SplitSpace(tables), order, even_shares(tables)))


def random_cases(seeds: Sequence[int]) -> Iterator[tuple[Order, Balance]]:
    """Every configuration and order of tiny instances."""
    for seed in seeds:
        instance = random_instance(seed)
        for config in configs(instance):
            tables = build_tables(instance, config)
            shares = even_shares(tables)
            for order in node_orders(config.nodes_used, 6):
                yield order, order_balance(SplitSpace(tables), order, shares)


def valid(costs: Balance, split: Split) -> bool:
    """Whether every stage has its blocks and its memory."""
    return all(costs.allowed(k, *stage) for k, stage in enumerate(pairwise(split)))


@pytest.mark.parametrize(("blocks", "split"), [(7, (0, 2, 4, 6, 9)), (9, (0, 3, 6, 8, 11))])
def test_even_split_gives_layers_left_over_to_the_last_stage_and_the_first(
    blocks: int, split: Split
) -> None:
    """On 4 stages, with 2 ends: 9 = 2 + 2 + 2 + 3, and 11 = 3 + 3 + 2 + 3."""
    assert even_split(chain_tables(chain_instance([1] * blocks, [SLOW] * 4))) == split


@ROUND
def test_even_split_leaves_every_stage_a_block() -> None:
    """Two layers without a block in front: the second stage gives its first block away."""
    instance = chain_instance([1, 1], [SLOW] * 2)
    first = instance.workload.layer_runs[0]
    tables = chain_tables(
        instance.but(workload={"layer_runs": (first, *instance.workload.layer_runs)})
    )
    assert even_split(tables) == (0, 3, 5)


@ROUND
def test_even_split_may_leave_a_stage_without_a_block_if_allowed() -> None:
    """3 layers on 2 stages are 1 + 2: the embedding stands alone."""
    search = SearchSpace(embedding_only_stages=True)
    tables = chain_tables(chain_instance([1], [SLOW] * 2, search))
    assert even_split(tables) == (0, 1, 3)


@ROUND
def test_even_split_refuses_more_stages_than_blocks() -> None:
    """One block cannot be on two stages."""
    with pytest.raises(ValueError, match="too few"):
        even_split(chain_tables(chain_instance([1], [SLOW] * 2)))


@ROUND
@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [(0, 2, (0, 1, 3, 6)), (2, 0, (0, 3, 5, 6)), (1, 2, (0, 2, 3, 6))],
)
def test_moving_a_layer_shifts_the_stages_between(
    source: int, target: int, expected: Split
) -> None:
    """Sizes 2, 2, 2 become 1, 2, 3; 3, 2, 1; and 2, 1, 3."""
    assert moved((0, 2, 4, 6), source, target) == expected


@ROUND
def test_layers_move_to_the_faster_node_until_stages_are_level() -> None:
    """6 blocks of 2 GFLOPs, 3 ms or 6 ms each: from 3 | 3 (9, 18 ms) to 4 | 2 (12, 12 ms)."""
    tables = chain_tables(chain_instance([2] * 6, [FAST, SLOW]))
    assert split_of(tables) == (0, 5, 8)


@ROUND
def test_stage_time_is_that_of_the_slowest_replica() -> None:
    """Stage 0 on fast and slow, stage 1 on two slow nodes: level as if all were slow."""
    tables = chain_tables(chain_instance([2] * 4, [FAST, SLOW, SLOW, SLOW]), dp=2)
    costs = order_balance(SplitSpace(tables), range(4), (2, 2))
    assert costs.times_ns((0, 3, 6)) == [12 * MS, 12 * MS]
    assert split_of(tables) == (0, 3, 6)


@ROUND
def test_bug_the_last_bad_move_is_not_kept() -> None:
    """[e 4 2 | 3 3 | 1 1 h] takes 18, 18, 6 ms.

    One layer from stage 0 to 2: [e 4 | 2 3 | 3 1 1 h] takes 12, 15, 15. Then one from stage 1
    to 0 would be [e 4 2 | 3 | ...], 18, 9, 15: worse, so that the split before it is returned.
    """
    tables = chain_tables(chain_instance([4, 2, 3, 3, 1, 1], [SLOW] * 3))
    assert even_split(tables) == (0, 3, 5, 8)
    assert split_of(tables) == (0, 2, 4, 8)


@ROUND
def test_moves_that_keep_the_maximum_end_when_a_split_comes_back() -> None:
    """3 equal blocks on 2 equal stages: 1 | 2 becomes 2 | 1, and 1 | 2 is not tried again."""
    tables = chain_tables(chain_instance([1] * 3, [SLOW] * 2))
    assert split_of(tables) == (0, 3, 5)


@ROUND
def test_a_full_stage_is_passed_over() -> None:
    """The second node is the fastest but full, so the third takes the layer.

    Weights, gradients and Adam state of a layer are 180 MB, and its activations 10 MB, here for
    2 micro-batches: beside the reserve of 1 GiB, 1.45 GiB have room for 2 layers (400 of 483 MB).
    """
    small, quick = ("small", 8.0, 1.45), ("quick", 8.0, 8.0)
    tables = chain_tables(chain_instance([2] * 7, [SLOW, small, quick]))
    # Even, 3 + 3 + 3 layers, does not fit; the nearest that does is 3 + 2 + 4: 12, 3 and 4.5 ms.
    # Then 2 + 2 + 5: 6, 3 and 6 ms.
    assert split_of(tables) == (0, 2, 4, 9)


@ROUND
@pytest.mark.parametrize("nodes", [[SLOW] * 2, [FAST, SLOW], [SLOW, FAST], [SLOW, FAST, SLOW]])
@pytest.mark.parametrize("blocks", range(3, 10))
def test_equal_blocks_reach_the_least_maximum(
    nodes: list[tuple[str, float, float]], blocks: int
) -> None:
    """With equal blocks and room for all, the largest stage time is the least of all splits."""
    tables = chain_tables(chain_instance([1] * blocks, nodes))
    costs = order_balance(SplitSpace(tables), range(len(nodes)), (4,))
    least = min(
        max(costs.times_ns(split))
        for split in all_splits(tables.num_layers, len(nodes))
        if valid(costs, split)
    )
    split = minmax_of(costs)
    assert split is not None
    assert max(costs.times_ns(split)) == least


@ROUND
def test_stage_times_and_memory_are_those_of_the_plan() -> None:
    """Equal to `split_costs` on every split of tiny instances."""
    for order, costs in random_cases(range(4)):
        placement = Placer(costs.space.tables).costs(order)
        for split in all_splits(costs.space.tables.num_layers, costs.space.tables.config.pp):
            plan = split_costs(costs.space.tables, placement, split, costs.shares)
            work = (plan.forward_ns + plan.backward_ns).max(axis=1)
            assert costs.times_ns(split) == work.tolist()
            fits = (plan.memory_bytes <= plan.limit_bytes).all(axis=1).tolist()
            stages = enumerate(pairwise(split))
            assert [bool(end <= costs.farthest[k, start]) for k, (start, end) in stages] == fits


@ROUND
def test_minmax_finds_a_split_if_and_only_if_one_fits() -> None:
    """Tiny instances, some with too little memory for the even or any split."""
    seen = set()
    for _, costs in random_cases(range(24)):
        tables = costs.space.tables
        splits = all_splits(tables.num_layers, tables.config.pp)
        possible = any(valid(costs, split) for split in splits)
        found = minmax_of(costs)
        assert (found is not None) == possible
        assert found is None or valid(costs, found)
        seen.add((possible, valid(costs, even_split(tables))))
    assert seen == {(True, True), (True, False), (False, False)}


@ROUND
@pytest.mark.parametrize("seeds", few_and_many(range(60), 12))
def test_minmax_is_never_slower_than_the_even_split(seeds: Sequence[int]) -> None:
    """Largest stage time, wherever the even split fits."""
    for _, costs in random_cases(seeds):
        even = even_split(costs.space.tables)
        if valid(costs, even):
            found = minmax_of(costs)
            assert found is not None
            assert max(costs.times_ns(found)) <= max(costs.times_ns(even))
