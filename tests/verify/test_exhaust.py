"""The verifier's own exhaustive search, against brute force."""

import random
from unittest.mock import MagicMock

import numpy as np
import pytest

from formulations.costs.tables import build_tables
from formulations.instance.search import ScheduleName
from solver.interrupt import Deadline, TimeUp
from solver.simulate import simulate
from solver.verify import exhaust as module
from solver.verify import orders
from solver.verify.exhaust import exhaust
from tests import brute_force, random_configs
from tests.best_plans import check_claims, prover_of
from tests.chain_instances import FAST, SLOW, chain_instance, chain_tables
from tests.conftest import present
from tests.recorded import Cases, digest, recorded
from tests.seeds import each_of


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("few", [1, module.FEW])
@each_of(range(80), 20)
def test_claims_up_to_the_optimum_are_proved_and_no_others(
    seed: int, zones: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even and uneven, blocking, tied, zones: no plan is faster than the best, and it is found.

    Whether plans are tried in bulk, or halves are halved until one plan is left.
    """
    monkeypatch.setattr(module, "FEW", few)
    check_claims(
        random_configs.random_tables(seed, zones), random_configs.random_optimum_ns(seed, zones)
    )


@pytest.mark.parametrize("zones", [False, True])
@each_of(range(60), 20)
def test_bug_uneven_shares_of_zb_h1_are_tried(seed: int, zones: bool) -> None:
    """With fewer micro-batches it has another order, and there was no opinion."""
    check_claims(
        random_configs.random_tables(seed, zones, "zb-h1"),
        random_configs.random_optimum_ns(seed, zones, "zb-h1"),
    )


def test_bug_fewer_micro_batches_recompute_less() -> None:
    """Zones slow a replica down, so it gets fewer micro-batches, and has room for more of them.

    The plan that refutes a claim above the optimum was priced as if it still recomputed as much,
    and the claim passed for proved.
    """
    instance = random_configs.zoned(random_configs.crowded_instance(99), 99)
    search = {"recompute": ("none", "selective", "full"), "schedule": ("1f1b",)}
    fields = {
        "search": instance.search.model_copy(update=search),
        "workload": random_configs.with_cores(instance.workload),
    }
    instance = instance.model_copy(update=fields)
    config = present(random_configs.random_config(instance, 99))
    tables = build_tables(
        random_configs.with_less_memory(instance, config, random.Random(99)), config
    )
    check_claims(tables, brute_force.optimum_ns(tables))


def test_no_opinion_beyond_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time not even what is plain; nor without a graph of all orders."""
    tables = chain_tables(chain_instance([1, 1], [SLOW, FAST]))
    prover = prover_of(tables)
    with pytest.raises(TimeUp):
        exhaust(prover, tables.config, 1, Deadline(0.0))
    monkeypatch.setattr(orders, "MOST_STEPS", 0)
    assert exhaust(prover, tables.config, 1, Deadline(None)) is None


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
@each_of(range(60), 24)
def test_claims_where_stages_recompute_in_part(seed: int, schedule: str) -> None:
    """Where memory decides what is recomputed, a claim 1 ns above the optimum is refuted."""
    tables = random_configs.cramped_tables(seed, schedule)
    check_claims(tables, brute_force.optimum_ns(tables))


@recorded("verify_exhaust")
def test_ends_of_steps_are_as_recorded() -> Cases:
    """Of random last backwards and tails, which of both ends is later by turns."""
    for seed in range(0, 40, 4):
        graph, rng = orders.OrderGraph(random_configs.random_tables(seed)), np.random.default_rng(7)
        size, rows = (len(graph.built), 50), len(graph.epilogues.embeddings)
        chosen = rng.integers(rows, size=size)
        ready, sync, after = rng.integers(10**6, size=(3, *size))
        tail = sync + np.array(graph.epilogues.embeddings)[chosen] + after
        yield f"ends {seed}", int(module.ended(graph, ready, chosen, tail, sync).sum())


@pytest.mark.parametrize("schedule", [None, "zb-h1", "interleaved"])
@recorded("verify_exhaust")
def test_outcomes_are_as_recorded(
    schedule: ScheduleName | None, monkeypatch: pytest.MonkeyPatch
) -> Cases:
    """Whether plans were tried, in how many parts, and which refutes a claim above the best."""
    simulated = MagicMock(side_effect=simulate)
    monkeypatch.setattr(module, "simulate", simulated)
    for seed in range(0, 80, 32):
        tables, best = (
            random_configs.random_tables(seed, False, schedule),
            random_configs.random_optimum_ns(seed, False, schedule),
        )
        told, prover = list[object](), prover_of(tables)
        for claim in (best, best + 1, best * 11 // 10) if best else ():
            outcome = present(exhaust(prover, tables.config, claim, Deadline(None)))
            told += [outcome.tried, outcome.step_time_ns, digest(outcome.plan)]
        yield f"seed {seed}, {schedule}", [*told, simulated.call_count]
