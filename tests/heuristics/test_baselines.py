"""Plans of the rules of thumb: feasible, judged by the simulator, and as the rule says."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Cluster, Instance, Link, SearchSpace
from formulations.space import configs
from solver.heuristics import baselines
from solver.heuristics.balance import Balance, Split, SplitSpace
from solver.heuristics.node_orders import best_plan, node_orders
from solver.heuristics.time_tables import TimeTables
from solver.simulate import step_time_ns
from tests.chain_instances import SLOW, all_splits, chain_instance, chain_of, chain_tables
from tests.conftest import present
from tests.random_spaces import random_space, spread
from tests.recorded import Cases, digest, recorded
from tests.seeds import few_and_many
from tests.small_instances import gpu, layer, nodes_of, random_instance, with_ends, workload


def equal_chunks(instance: Instance) -> baselines.Found:
    """Of several chunks on each of two devices, or of as many as the instance has."""
    space = spread(instance, 40)
    if not any(config.vpp > 1 for config in space):
        search = {"schedule": ("interleaved",), "pipeline_parallel": (2,)}
        space = spread(instance.but(search=search), 40)
    return baselines.equal_chunks_plan(space, TimeTables(instance), lambda: False)


BASELINES: dict[str, Callable[[Instance], baselines.Found]] = {
    "min-max": lambda i: best_plan(i, spread(i, 40), baselines.minmax_of),
    "equal split": lambda i: best_plan(i, spread(i, 40), baselines.equal_split_of),
    "megatron": lambda instance: baselines.megatron_rule(instance, configs(instance)),
    "AMP": lambda instance: [None, *baselines.amp_plans(instance, configs(instance))][-1],
    "equal chunks": equal_chunks,
}


def growing(memory_gib: float, blocks: int) -> Instance:
    """2 nodes of 2 GPUs, equal blocks of 10^8 parameters: more memory, less to be split."""
    kinds = with_ends(blocks)
    layers = [layer(kind, 1, 10**8 if kind == "block" else 0, 1000) for kind in kinds]
    link = Link(bandwidth_bytes_per_s=1e9, latency_s=0)
    node = nodes_of(
        gpu("gpu", 2.0, memory_gib), gpus_per_node=2, nodes=2, intra_node=link, inter_node=link
    )
    work = workload(layers, 8, 1000, tied=False)
    search = SearchSpace(micro_batch=(1, 2), recompute=("none", "full"))
    cluster = Cluster(groups=(node,))
    return Instance(name="growing", source="test", workload=work, cluster=cluster, search=search)


def instances() -> Iterator[tuple[str, Instance]]:
    yield from ((f"tiny {seed}", random_instance(seed)) for seed in range(0, 16, 3))
    yield from ((f"space {seed}", random_space(seed, "any")) for seed in range(4))
    sizes = [(9, 4), (5, 4), (3, 4), (2.3, 4), (2, 4), (3.7, 3), (3.4, 3)]
    yield from ((f"{memory} GiB, {n} blocks", growing(memory, n)) for memory, n in sizes)


@pytest.mark.parametrize("rule", BASELINES)
@recorded("baselines")
def test_plans_fit_take_their_simulated_time_and_are_the_recorded_ones(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> Cases:
    monkeypatch.setattr(baselines, "MOST_FAILURES", 1)
    for name, instance in instances():
        found = BASELINES[rule](instance)
        yield f"{rule} {name}", (found and [found[1], digest(found[0].replicas)])
        if found is not None:
            plan, time_ns = found
            costs = plan_costs(instance, plan)
            assert (costs.memory_bytes <= costs.limit_bytes).all()
            assert step_time_ns(costs) == time_ns
            assert sum(costs.micro_batches) * plan.config.micro_batch == (
                instance.workload.global_batch
            )


@pytest.mark.parametrize("limit", ["max_step_time_s", "max_cost_usd_per_step"])
def test_plans_beyond_a_limit_are_refused(limit: str) -> None:
    """Just inside and just outside the step time and the cost of the only plan, at 1 USD/h."""
    instance = chain_instance([1, 1], [SLOW])
    found = present(best_plan(instance, configs(instance), baselines.minmax_of))
    best = found[1] / 1e9 / (1 if limit == "max_step_time_s" else 3600)
    for value, expected in ((best * 1.001, found), (best * 0.999, None)):
        limited = instance.but(limits={limit: value})
        assert best_plan(limited, configs(limited), baselines.minmax_of) == expected


def balances(seeds: Sequence[int]) -> Iterator[Balance]:
    for seed in seeds:
        instance = random_instance(seed)
        for config in configs(instance):
            space = SplitSpace(build_tables(instance, config))
            yield from map(space.balance, node_orders(config.nodes_used, 6))


@recorded("baselines")
def test_even_splits_are_the_recorded_ones() -> Cases:
    """Layers left over go to the last stage and the first; a block has to be on every stage."""
    for kinds in ("ebbh", "ebbbbbbbh", "ebbbbbbbbbh", "eebbh", "eebbehbb", "bbbeeeebe"):
        for pp, alone in ((1, False), (2, False), (3, False), (3, True), (4, False), (4, True)):
            case = f"even {kinds} on {pp}{' alone' * alone}"
            if kinds.count("b") >= pp or alone:
                yield case, baselines.even_split(chain_of(kinds, pp, alone))
    with pytest.raises(ValueError, match="3 layers are too few for 2 stages"):
        baselines.even_split(chain_of("ebh", 2))


def split_of(tables: CostTables) -> Split | None:
    return baselines.minmax_of(SplitSpace(tables).balance(range(len(tables.config.nodes_used))))


@pytest.mark.usefixtures("round_times")
def test_bug_the_last_bad_move_is_not_kept() -> None:
    """[e 4 2 | 3 3 | 1 1 h] takes 18, 18, 6 ms.

    One layer from stage 0 to 2: [e 4 | 2 3 | 3 1 1 h] takes 12, 15, 15. Then one from stage 1
    to 0 would be [e 4 2 | 3 | ...], 18, 9, 15: worse, so that the split before it is returned.
    """
    tables = chain_tables(chain_instance([4, 2, 3, 3, 1, 1], [SLOW] * 3))
    assert baselines.even_split(tables) == (0, 3, 5, 8)
    assert split_of(tables) == (0, 2, 4, 8)
    # 1 | 2 becomes 2 | 1, and 1 | 2 is not tried again
    assert split_of(chain_tables(chain_instance([1] * 3, [SLOW] * 2))) == (0, 3, 5)


@pytest.mark.parametrize("seeds", few_and_many(range(60), 6))
def test_amp_splits_are_the_best_of_all_by_its_estimate(seeds: Sequence[int]) -> None:
    """(m - 1) max t + sum of t, against every split that fits."""
    for stages in balances(seeds):
        tables, m = stages.space.tables, max(stages.shares)
        every = [
            split
            for split in all_splits(tables.num_layers, tables.config.pp)
            if all(end in stages.ends(k, at) for k, (at, end) in enumerate(pairwise(split)))
        ]
        times = [stages.times_ns(split) for split in every]
        best = min(((m - 1) * max(ns) + sum(ns) for ns in times), default=None)
        found = baselines.amp_split(stages)
        assert (found and found[0]) == best
        assert found is None or found[1] in every


@pytest.mark.usefixtures("round_times")
def test_amp_estimate_by_hand() -> None:
    """[e 4 | 2 3 h] takes 12 and 15 ms, 3 * 15 + 27 with 4 micro-batches; 1 us to send either way.

    [e 4 2 | 3 h] takes 18 and 9 ms: 3 * 18 + 27.
    """
    space = SplitSpace(chain_tables(chain_instance([4, 2, 3], [SLOW] * 2)))
    assert baselines.amp_split(space.balance((0, 1))) == (72_000_000, (0, 2, 5))
    assert baselines.amp_estimate_ns(space, (0, 1), (0, 2, 5)) == 72_002_000
