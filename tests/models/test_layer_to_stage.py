"""The split of a model: exactly the splits that there are, within memory, and their bounds."""

from itertools import pairwise

import numpy as np
import pytest

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables
from formulations.decisions import Given
from formulations.models.layer_to_stage import Split, excess, possible_runs
from tests import brute_force
from tests.best_plans import judge
from tests.brute_force import all_splits
from tests.chain_instances import chain_of
from tests.random_configs import cramped_tables, random_optimum_ns, random_tables
from tests.recorded import as_recorded
from tests.seeds import one_each
from tests.twins import TWINS, Twin, all_solutions, check_sizes

Sizes = tuple[int, ...]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("embedding_only", [False, True])
@pytest.mark.parametrize(("kinds", "pp"), [("ebbbbh", 1), ("ebbbbh", 3), ("eebbehbb", 3)])
def test_solutions_are_the_splits(twin: Twin, kinds: str, pp: int, embedding_only: bool) -> None:
    """The constraints (6) and (7) admit every split with enough blocks, once, and no other."""
    tables, model = chain_of(kinds, pp, embedding_only), twin.model()
    split = Split(model, tables, possible_runs(StageCosts(tables)))
    assert all_solutions(model, split) == sorted(all_splits(tables))


def test_models_are_the_recorded_ones() -> None:
    """Of free splits, whose nodes and shares are given; of all of them where memory is scarce."""
    for seed in range(6):
        tables = random_tables(seed)
        order, shares = brute_force.all_orders(tables)[0], next(brute_force.all_shares(tables))
        given = Given(order, None, shares, max_step_time_ns=random_optimum_ns(seed))
        check_sizes("layer_to_stage", {f"{seed}": tables}, given)
    drawn = {f"cramped {seed}": cramped_tables(seed) for seed in range(6)}
    figures = {case: list(map(sorted, as_sets(tables))) for case, tables in drawn.items()}
    as_recorded("layer_to_stage", figures)


def as_sets(tables: CostTables, share: int = 1, limit_ns: int | None = None) -> list[set[Sizes]]:
    runs = possible_runs(StageCosts(tables), share, limit_ns)
    return [set(map(tuple, of_stage.tolist())) for of_stage in runs]


def test_excess_is_that_of_some_run() -> None:
    """Of all runs of drawn columns; nothing gives way where there is none."""
    drawn = np.random.default_rng(0)
    for layers in range(5, 9):
        runs = np.array([(a, b) for a in range(layers) for b in range(a + 1, layers + 1)])
        first, second = drawn.integers(0, 99, (2, layers))
        more = [int((first[a:b] - second[a:b]).sum()) for a, b in runs]
        assert excess(runs, first, second) == max(more)
        assert excess(runs[:0], first, second) == 0


@pytest.mark.parametrize("seed", one_each(range(60), 6))
def test_no_plan_within_the_limits_is_lost(seed: int) -> None:
    tables = random_tables(seed)
    judged = [(made, judge(tables, made)) for made in brute_force.all_decisions(tables)]
    times = sorted(step for _, step in judged if step is not None)
    for limit in times[:1] + times[len(times) // 2 :][:1]:
        plans = [made for made, step in judged if step is not None and step <= limit]
        share = min(min(made.micro_batches) for made in plans)
        possible = as_sets(tables, share, limit)
        for made in plans:
            assert all(run in possible[k] for k, run in enumerate(pairwise(made.boundaries)))
