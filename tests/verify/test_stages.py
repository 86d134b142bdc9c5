"""Claims about configs with several chunks per device, proved and refuted over all node orders."""

import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.space import PlanSpace, configs
from solver.interrupt import Deadline, TimeUp
from solver.verify import exhaust as module
from solver.verify.bounds import ANY_TIME_NS, Prover
from solver.verify.exhaust import exhaust
from solver.verify.orders import OrderGraph
from solver.verify.stages import ChunkStages
from tests.best_plans import check_claims, prover_of, question_of
from tests.random_configs import random_optimum_ns, random_tables, scheduled
from tests.recorded import Cases, digest, recorded, summary
from tests.seeds import each_of
from tests.small_instances import expert_instance


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("few", [2, module.FEW])
@each_of(range(9, 240), 231)
def test_the_optimum_is_proved_and_no_more(
    seed: int, few: int, zones: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against brute force, to the nanosecond, halved or not; the plan shown has that time."""
    monkeypatch.setattr(module, "FEW", few)
    best = random_optimum_ns(seed, zones, "interleaved")
    check_claims(random_tables(seed, zones, "interleaved"), best)


@pytest.mark.parametrize("seed", range(0, 60, 4))
@recorded("verify_stages")
def test_costs_of_devices_are_as_recorded(seed: int) -> Cases:
    for schedule in (None, "zb-h1", "interleaved"):
        tables = random_tables(seed, seed % 8 == 0, schedule)
        question = question_of(tables, 20 * spanned_ns(tables))
        stages, parts = question.stages, list[object]()
        everything = question.everything(10 * spanned_ns(tables))
        for k, choices in enumerate(everything):
            parts += [stages.sizes(k), stages.held(k), stages.possible(k), *stages.passes(k)]
            parts += [choices.step, choices.first, choices.last, choices.row]
            for r in stages.lanes:
                costs = stages.costs(everything, k, r)
                parts += [costs.times, costs.tail]
        yield f"seed {seed}, {schedule}", digest(summary(parts))


def spanned_ns(tables: CostTables) -> int:
    return int((tables.forward_ns + tables.backward_ns).sum(axis=0).max())


def test_too_many_ways_are_no_question() -> None:
    """Nothing is said of a configuration whose devices have more ways than are looked at."""
    tables = random_tables(2, schedule="interleaved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkStages, "most_choices", 1)
        with pytest.raises(TimeUp):
            exhaust(prover_of(tables), tables.config, ANY_TIME_NS, Deadline(None))


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
