"""What proofs share: that no split fits the memory, and the time that they have."""

from collections.abc import Sequence

import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance
from formulations.plan import Configuration
from formulations.space import PlanSpace, configs
from formulations.units import GIB
from solver.verify.bounds import Clock, Prover, TimeUpError
from tests import brute_force
from tests.certified_cases import instance
from tests.chain_instances import chain_instance
from tests.seeds import few_and_many
from tests.small_instances import plain_config, random_instance


def some_tables(seeds: Sequence[int]) -> list[CostTables]:
    """Costs of all configurations of some tiny instances."""
    return [
        build_tables(made, config)
        for made in map(random_instance, seeds)
        for config in configs(made)
    ]


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
    for tables in some_tables(seeds):
        lacks = Prover(PlanSpace(tables.instance)).lacks_memory(tables.config)
        assert lacks == (not splits_that_fit(tables))
        answers.add(lacks)
    assert answers == {False, True}


@pytest.mark.parametrize(("spare", "lacks"), [(0, False), (-1, True)])
def test_memory_is_lacking_by_one_byte(spare: int, lacks: bool) -> None:
    """One stage of all layers fits a GPU of just its size, and none that is a byte smaller."""
    config = chain_config(1)
    one = chain_instance([1, 1], [("slow", 2.0, 8.0)])
    need = brute_force.least_bytes(build_tables(one, config), [(0, 4)], 0, 4)
    tight = chain_instance([1, 1], [("slow", 2.0, (need + spare) / GIB)])
    assert Prover(PlanSpace(tight)).lacks_memory(config) is lacks


@pytest.mark.parametrize(("spare", "lacks"), [(0, False), (-1, True)])
def test_bug_whole_gradients_of_the_head_take_memory(spare: int, lacks: bool) -> None:
    """ZeRO 2 holds those of one layer whole; the verifier looked at layers up to the last block."""
    config = plain_config((1, 0), dp=2, zero=2)
    need = brute_force.least_bytes(build_tables(with_large_head(), config), [(0, 4)], 0, 2)
    tight = with_large_head((need + spare) / GIB)
    assert Prover(PlanSpace(tight)).lacks_memory(config) is lacks


def with_large_head(memory_gib: float = 8) -> Instance:
    """The head has more parameters than all other layers together."""
    one = instance(memory_gib=memory_gib)
    *others, head = one.workload.layer_runs
    runs = (*others, head.but(layer={"sharded_parameters": 10**8}))
    return one.but(workload={"layer_runs": runs})


def chain_config(pp: int) -> Configuration:
    """Stages of one GPU each."""
    return plain_config((1,) * pp, pp=pp)


def test_a_clock_within_another_ends_with_it() -> None:
    """Time that is left is that of both, the shorter; none is left of 0 s."""
    assert Clock().left_s is None
    assert not Clock(None, Clock(60.0)).over
    assert (Clock(3600.0, Clock(60.0)).left_s or 0) <= 60.0
    assert Clock(60.0, Clock(0.0)).over
    with pytest.raises(TimeUpError):
        Clock(None, Clock(0.0)).check()
