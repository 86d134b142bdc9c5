"""What proofs share: that no split fits the memory, and the time that they have."""

from collections.abc import Sequence

import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance
from formulations.space import PlanSpace, configs
from formulations.units import GIB
from solver.verify.bounds import Prover
from tests import brute_force
from tests.best_plans import all_tables
from tests.certified_cases import instance
from tests.random_configs import cramped_instance
from tests.seeds import few_and_many
from tests.small_instances import plain_config, random_instance


def splits_that_fit(tables: CostTables) -> list[tuple[int, ...]]:
    """Splits in which each stage fits the largest GPU used, with the fewest in flight."""
    config = tables.config
    even = tables.instance.search.micro_batches == "even"
    m = tables.num_micro_batches // config.dp if even else 1
    most = max(int(tables.capacity_bytes[j]) for j, n in enumerate(config.nodes_used) if n)
    return [
        split
        for split in brute_force.all_splits(tables)
        if all(
            brute_force.least_bytes(tables, [(split[k], split[k + 1])], k, m) <= most
            for k in range(config.pp)
        )
    ]


@pytest.mark.parametrize("seeds", few_and_many(range(60), 6))
def test_lack_of_memory_is_what_trying_every_split_finds(seeds: Sequence[int]) -> None:
    """The chain of stages finds a split exactly if there is one; some configurations have none."""
    answers = set()
    search = {"schedule": ("1f1b", "gpipe")}
    for tables in all_tables(random_instance(seed).but(search=search) for seed in seeds):
        lacks = Prover(PlanSpace(tables.instance)).lacks_memory(tables.config)
        assert lacks == (not splits_that_fit(tables))
        answers.add(lacks)
    assert answers == {False, True}


def large_head(memory_gib: float = 8) -> Instance:
    made = instance(memory_gib=memory_gib)
    *others, head = made.workload.layer_runs
    runs = (*others, head.but(layer={"sharded_parameters": 10**8}))
    return made.but(workload={"layer_runs": runs})


@pytest.mark.parametrize("dp", [1, 2])
def test_bug_whole_gradients_of_the_head_take_memory(dp: int) -> None:
    """One stage of all layers fits a GPU of just its size, and none that is a byte smaller.

    ZeRO 2 holds those of one layer whole; the verifier looked at layers up to the last block.
    """
    config = plain_config((1, 0), dp=dp, zero=2 * (dp - 1))
    need = brute_force.least_bytes(build_tables(large_head(), config), [(0, 4)], 0, 4 // dp)
    for spare in (0, -1):
        tight = Prover(PlanSpace(large_head((need + spare) / GIB)))
        assert tight.lacks_memory(config) is (spare < 0)


def test_what_has_no_room_is_recomputed() -> None:
    """So some layers take longer backward than they do by themselves."""
    cramped = cramped_instance(9)[0]
    prover, config = Prover(PlanSpace(cramped)), next(iter(configs(cramped)))
    assert (prover.backward_ns(config, 0, 9) > prover.stage_times(config)[1]).any()
