"""Claims about configs with several chunks per device, proved and refuted over all node orders."""

from collections.abc import Sequence

import numpy as np
import pytest

from formulations.costs.tables import build_tables
from formulations.space import PlanSpace, configs
from solver.verify import exhaust as module
from solver.verify.bounds import ANY_TIME_NS, Clock, Prover, TimeUpError
from solver.verify.exhaust import exhaust
from solver.verify.orders import OrderGraph
from solver.verify.stages import ChunkStages, Stages
from tests.best_plans import check_claims
from tests.equal_nodes import equal_nodes
from tests.expert_instances import expert_instance
from tests.random_configs import random_optimum_ns, random_tables, scheduled
from tests.seeds import few_and_many


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("few", [2, module.FEW])
@pytest.mark.parametrize("seeds", few_and_many(range(240), 120))
def test_the_optimum_is_proved_and_no_more(
    seeds: Sequence[int], few: int, zones: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against brute force, to the nanosecond, halved or not; the plan shown has that time."""
    monkeypatch.setattr(module, "FEW", few)
    for seed in seeds:
        best = random_optimum_ns(seed, zones, "interleaved")
        check_claims(random_tables(seed, zones, "interleaved"), best)


def test_outer_devices_have_the_outer_layers() -> None:
    """Of four layers the first device's start at 0, the last one's end at 4."""
    tables = equal_nodes(nodes=2, gpus=1, tp=1, dp=1, pp=2)
    stages = Stages(Prover(PlanSpace(tables.instance)), tables.config, OrderGraph(tables))
    first, last = (stages.possible(k).reshape(5, 5) for k in range(2))
    assert np.argwhere(first).tolist() == [[0, 1], [0, 2], [0, 3], [0, 4]]
    assert np.argwhere(last).tolist() == [[0, 4], [1, 4], [2, 4], [3, 4]]


def test_too_many_ways_are_no_question() -> None:
    """Nothing is said of a configuration whose devices have more ways than are looked at."""
    tables = random_tables(2, schedule="interleaved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkStages, "most_choices", 1)
        with pytest.raises(TimeUpError):
            exhaust(Prover(PlanSpace(tables.instance)), tables.config, ANY_TIME_NS, Clock())


def test_bug_runs_of_layers_that_no_chunk_may_have_took_no_time() -> None:
    """Their time, beyond any claim, wrapped to 0 with 256 micro-batches, and they came back."""
    tables = random_tables(1, schedule="interleaved")
    config = tables.config
    batch = 256 * config.dp * config.micro_batch
    prover = Prover(PlanSpace(tables.instance.but(workload={"global_batch": batch})))
    stages = ChunkStages(prover, config, OrderGraph(prover.tables(config)), ANY_TIME_NS - 1)
    outer = [stages.sizes(0)[0], stages.sizes(1)[1]]  # with embedding or head, and a block
    assert [own.min() for own in outer] == [2, 2]


def test_bug_chunks_recomputed_all_experts_of_a_block() -> None:
    """What devices recompute takes as long as their share of the experts does."""
    instance = scheduled(expert_instance(3), "interleaved", 2)
    instance = instance.but(search={"recompute": ("none", "full")})
    config = next(one for one in configs(instance) if one.ep > 1 and one.vpp > 1)
    extra = Prover(PlanSpace(instance)).tables(config).recompute_ns
    for by_prover, planned in zip(extra, build_tables(instance, config).recompute_ns, strict=True):
        assert by_prover.tolist() == planned.tolist()
