"""Plans of the rules of thumb: feasible, judged by the simulator, and as the rule says."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import plan_costs, split_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import even_shares
from formulations.instance import Cluster, Instance, Link, SearchSpace
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


def checked(instance: Instance, found: Found) -> int:
    """1 for a plan in the space that fits and takes as long as simulated, 0 for none."""
    if found is None:
        return 0
    plan, time_ns = found
    costs = plan_costs(instance, plan)
    assert (costs.memory_bytes <= costs.limit_bytes).all()
    assert step_time_ns(costs) == time_ns
    assert sum(costs.micro_batches) * plan.config.micro_batch == instance.workload.global_batch
    assert plan.config in set(configs(instance))
    return 1


@pytest.mark.parametrize("baseline", BASELINES)
def test_plans_fit_and_their_time_is_the_simulated_one(baseline: Baseline) -> None:
    instances = map(random_instance, range(16))
    assert sum(checked(one, baseline(one, configs(one))) for one in instances) > 7


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
    instance = random_instance(seed)
    found = minmax_plan(instance, configs(instance))
    assert (found and found[1]) == min(every_minmax_time(instance), default=None)


def test_equal_split_does_not_move_layers() -> None:
    """Fast and slow node: min-max gives the fast one more, the equal split does not."""
    search = SearchSpace(pipeline_parallel=(2,), micro_batch=(1,), recompute=("none",))
    instance = chain_instance([2] * 6, [FAST, SLOW], search)
    (plan, time_ns), (_, least_ns) = (
        found for find in BASELINES[1::-1] if (found := find(instance, configs(instance)))
    )
    assert [stage.layers for stage in plan.replicas[0].stages] == [(0, 4), (4, 8)]
    assert least_ns < time_ns


@pytest.mark.parametrize("limit", ["max_step_time_s", "max_cost_usd_per_step"])
def test_plans_beyond_a_limit_are_refused(limit: str) -> None:
    """Just inside and just outside the step time and the cost of the only plan, at 1 USD/h."""
    instance = chain_instance([1, 1], [SLOW])
    found = minmax_plan(instance, configs(instance))
    assert found is not None
    best = found[1] / 1e9 / (1 if limit == "max_step_time_s" else 3600)
    for value, expected in ((best * 1.001, found), (best * 0.999, None)):
        limited = instance.but(limits={limit: value})
        assert minmax_plan(limited, configs(limited)) == expected


@pytest.mark.parametrize(("blocks", "split"), [(4, (0, 3, 6)), (5, None)])
def test_equal_blocks_keep_the_ends_with_their_blocks(blocks: int, split: Split | None) -> None:
    """4 blocks on 2 stages: embedding + 2 and 2 + head; 5 are not 2 equal stages."""
    assert equal_blocks(chain_tables(chain_instance([1] * blocks, [SLOW] * 2))) == split


def megatron_instance(memory_gib: float, parameters: int, blocks: int = 4) -> Instance:
    """2 nodes of 2 GPUs, equal blocks; 18 bytes per parameter beside a reserve of 1 GiB.

    And 2 for those of one block, whose gradients are on their way: 0.09 GiB at tp = 2.
    """
    kinds = with_ends(blocks)
    layers = [layer(kind, 1, parameters if kind == "block" else 0, 1000) for kind in kinds]
    one = gpu("gpu", 2.0, memory_gib)
    link = Link(bandwidth_bytes_per_s=1e9, latency_s=0)
    group = nodes_of(one, name="node", gpus_per_node=2, nodes=2, intra_node=link, inter_node=link)
    work = workload(layers, 8, 1000, tied=False)
    return instance_of("megatron", work, [group], search=SearchSpace(micro_batch=(1, 2)))


@pytest.mark.parametrize(
    ("memory_gib", "blocks", "degrees"),
    [
        (9.0, 4, (0, 1, 4, 1, 2)),  # 4 blocks of 10^8 parameters: 7.2 GB = 6.7 GiB on one GPU
        (5.0, 4, (0, 2, 2, 1, 2)),  # 3.35 GiB on each of 2: tensor parallel inside a node
        # 1.68 GiB on each of 4: then a pipeline of 2 nodes. By equation 1, (m + p - 1) (t_f + t_b),
        # 8 sequences take 9 t one by one, and 5 * 2 t two by two.
        (3.0, 4, (0, 2, 1, 2, 1)),
        (2.0, 4, None),
        # 3 blocks cannot be cut in 2 stages: tp = 2 and dp = 2 take 2.51 GiB, 18 bytes for 1.5 *
        # 10^8 parameters; 1.68 GiB, 12 bytes, with the optimizer's state split over 2 replicas
        (3.7, 3, (0, 2, 2, 1, 2)),
        (3.4, 3, (1, 2, 2, 1, 2)),
    ],
)
def test_megatron_grows_tensor_then_pipeline_then_zero_until_it_fits(
    memory_gib: float, blocks: int, degrees: tuple[int, ...] | None
) -> None:
    """(zero, tp, dp, pp, micro-batch), beside 1 GiB: what is not needed is left for replicas."""
    instance = megatron_instance(memory_gib, 10**8, blocks)
    found = megatron_rule(instance, configs(instance))
    config = found and found[0].config
    assert degrees == (
        config and (config.zero, config.widest_tp, config.dp, config.pp, config.micro_batch)
    )
    for replica in found[0].replicas if found else ():
        assert {stage.recomputed.way for stage in replica.stages} == {"none"}


def test_megatron_leaves_nodes_out_where_all_of_them_cannot_divide_the_batch() -> None:
    """3 nodes of one GPU, 4 blocks, 4 sequences: neither 3 replicas nor 3 stages; 2 do."""
    instance = chain_instance([1] * 4, [FAST, SLOW, SLOW], SearchSpace(micro_batch=(1, 2)))
    plan, _ = megatron_rule(instance, configs(instance)) or pytest.fail("no plan")
    assert (plan.config.nodes_used, plan.config.dp, plan.config.pp) == ((1, 1, 0), 2, 1)


#: Narayanan et al. 2021, table 1: heads, hidden size, layers, t, p, GPUs, batch.
PUBLISHED = [  # 1.7, 39.1 and 145.6 billion parameters
    (24, 2304, 24, 1, 1, 32, 512),
    (64, 8192, 48, 8, 2, 512, 1536),
    (96, 12288, 80, 8, 8, 1536, 2304),
]


@pytest.mark.parametrize(("heads", "hidden", "blocks", "tp", "pp", "gpus", "batch"), PUBLISHED)
def test_megatron_rule_gives_the_published_degrees(
    heads: int, hidden: int, blocks: int, tp: int, pp: int, gpus: int, batch: int
) -> None:
    """A100 of 80 GB in nodes of 8, full recomputation; the distributed optimizer is not needed."""
    sizes = TransformerSizes(
        hidden_size=hidden,
        layers=blocks,
        heads=heads,
        vocabulary_size=51200,
        learned_positions=2048,
    )
    gpt = build_workload(sizes, name="gpt", source="test", sequence_length=2048, global_batch=batch)
    link = Link(bandwidth_bytes_per_s=1e11, latency_s=0)
    a100 = gpu("A100-80", 312, 80).but(peak_flops={gpt.precision: 3.12e14})
    group = nodes_of(
        a100, name="dgx", gpus_per_node=8, nodes=gpus // 8, intra_node=link, inter_node=link
    )
    search = SearchSpace(recompute=("full",), idle_nodes=False, micro_batch=(1, 2, 4))
    cluster = Cluster(groups=(group,))
    instance = Instance(name="gpt", source="test", workload=gpt, cluster=cluster, search=search)
    plan, _ = megatron_rule(instance, configs(instance)) or pytest.fail("no plan")
    assert (plan.config.widest_tp, plan.config.pp) == (tp, pp)


def test_equal_chunks_fit_and_their_time_is_the_simulated_one() -> None:
    """Of several chunks per device, equally many blocks on each."""
    plans = 0
    for seed in range(30):
        search = {"schedule": ("interleaved",), "pipeline_parallel": (2,)}
        instance = random_instance(seed).but(search=search)
        found = equal_chunks_plan(configs(instance), TimeTables(instance), lambda: False)
        plans += checked(instance, found)
        blocks = [layer.is_block for layer in instance.workload.layers]
        stages = found[0].replicas[0].stages if found else ()
        assert len({sum(blocks[slice(*stage.layers)]) for stage in stages}) == (found is not None)
    assert plans


def split_of(tables: CostTables) -> Split | None:
    order = range(len(tables.config.nodes_used))
    return minmax_of(order_balance(SplitSpace(tables), order, even_shares(tables)))


def random_cases(seeds: Sequence[int]) -> Iterator[tuple[Order, Balance]]:
    for seed in seeds:
        instance = random_instance(seed)
        for config in configs(instance):
            tables = build_tables(instance, config)
            shares = even_shares(tables)
            for order in node_orders(config.nodes_used, 6):
                yield order, order_balance(SplitSpace(tables), order, shares)


def valid(costs: Balance, split: Split) -> bool:
    return all(costs.allowed(k, *stage) for k, stage in enumerate(pairwise(split)))


@ROUND
def test_even_split_by_hand() -> None:
    """Layers left over go to the last stage and the first; a block has to be on every stage."""
    # 9 = 2 + 2 + 2 + 3 and 11 = 3 + 3 + 2 + 3 layers, with 2 ends
    for blocks, split in ((7, (0, 2, 4, 6, 9)), (9, (0, 3, 6, 8, 11))):
        assert even_split(chain_tables(chain_instance([1] * blocks, [SLOW] * 4))) == split
    # two layers without a block in front: the second stage gives its first block away
    instance = chain_instance([1, 1], [SLOW] * 2)
    runs = instance.workload.layer_runs
    assert even_split(chain_tables(instance.but(workload={"layer_runs": (runs[0], *runs)}))) == (
        (0, 3, 5)
    )
    alone = SearchSpace(embedding_only_stages=True)
    assert even_split(chain_tables(chain_instance([1], [SLOW] * 2, alone))) == (0, 1, 3)
    with pytest.raises(ValueError, match="too few"):
        even_split(chain_tables(chain_instance([1], [SLOW] * 2)))


@ROUND
@pytest.mark.parametrize(
    ("gflops", "nodes", "split"),
    [
        # 3 ms or 6 ms each: from 3 | 3 (9, 18 ms) to 4 | 2 (12, 12 ms)
        ([2] * 6, [FAST, SLOW], (0, 5, 8)),
        # 1 | 2 becomes 2 | 1, and 1 | 2 is not tried again
        ([1] * 3, [SLOW, SLOW], (0, 3, 5)),
        # The second node is the fastest but full: weights, gradients and Adam state of a layer are
        # 180 MB, its activations 10 MB, here for 2 micro-batches: beside the reserve of 1 GiB there
        # is room for 2 layers (400 of 483 MB). Even, 3 + 3 + 3 layers, does not fit; the nearest
        # that does is 3 + 2 + 4: 12, 3 and 4.5 ms. Then 2 + 2 + 5: 6, 3 and 6 ms.
        ([2] * 7, [SLOW, ("small", 8.0, 1.45), ("quick", 8.0, 8.0)], (0, 2, 4, 9)),
    ],
)
def test_minmax_by_hand(
    gflops: list[int], nodes: list[tuple[str, float, float]], split: Split
) -> None:
    assert split_of(chain_tables(chain_instance(gflops, nodes))) == split


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
@pytest.mark.parametrize("seeds", few_and_many(range(60), 3))
def test_minmax_finds_a_split_if_and_only_if_one_fits(seeds: Sequence[int]) -> None:
    """Tiny instances with too little memory for any split or the even one; never slower than it."""
    seen = set()
    for _, costs in random_cases(seeds):
        tables = costs.space.tables
        possible = any(valid(costs, s) for s in all_splits(tables.num_layers, tables.config.pp))
        found, even = minmax_of(costs), even_split(tables)
        assert (found is not None) == possible
        assert found is None or valid(costs, found)
        if found is not None and valid(costs, even):
            assert max(costs.times_ns(found)) <= max(costs.times_ns(even))
        seen.add((possible, valid(costs, even)))
    assert seen == {(True, True), (True, False), (False, False)}
