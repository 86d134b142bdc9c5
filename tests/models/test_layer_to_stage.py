"""The split of a model: exactly the splits that there are, within memory, and their bounds."""

import random
from itertools import combinations, pairwise

import numpy as np
import pytest

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import Array, CostTables
from formulations.decisions import Given
from formulations.models.layer_to_stage import Split, excess, longest_path, possible_runs
from tests import brute_force
from tests.brute_force import all_splits
from tests.chain_instances import chain_of
from tests.loop_checks import judge
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


def random_runs(length: int, seed: int) -> Array:
    rng = random.Random(seed)
    every = list(combinations(range(length + 1), 2))
    return np.array(sorted(rng.sample(every, 6)), dtype=np.int64)


def values(length: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, 100, length)


@pytest.mark.parametrize("seed", range(6))
def test_excess_is_the_largest_difference(seed: int) -> None:
    """No run has a larger difference of sums, and one has this, also below 0; of no run it is 0."""
    intervals, first, second = random_runs(6, seed), values(6, seed), values(6, seed + 99)
    for less in (0, 200):
        differences = [int((first - second - less)[a:b].sum()) for a, b in intervals]
        assert excess(intervals, first, second + less) == max(differences)
    assert excess(intervals[:0], first, second) == 0


@pytest.mark.parametrize("seed", range(6))
def test_longest_path_is_the_longest(seed: int) -> None:
    rng = random.Random(seed)
    columns = [[values(6, seed + 7 * k), values(6, seed + 9 * k + 1)] for k in range(3)]
    splits = [(0, a, b, 6) for a, b in combinations(range(1, 6), 2) if rng.random() < 0.7]
    stages = [(np.array(sorted({(s[k], s[k + 1]) for s in splits})), columns[k]) for k in range(3)]
    # Runs of the stages meet in more splits than those that made them.
    sets = [{tuple(run) for run in intervals.tolist()} for intervals, _ in stages]
    longest = max(
        sum(max(int(c[s[k] : s[k + 1]].sum()) for c in columns[k]) for k in range(3))
        for s in ((0, a, b, 6) for a, b in combinations(range(1, 6), 2))
        if all((s[k], s[k + 1]) in sets[k] for k in range(3))
    )
    assert longest_path(stages, 6) == longest
    assert longest_path([*stages, stages[-1]], 6) == 0  # a fourth stage never meets the end
