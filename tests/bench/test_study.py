"""The heuristic gap study: its optima against brute force and published plans."""

from itertools import pairwise
from pathlib import Path

import pytest

from bench.cases import ConfigStudy, cases
from bench.study import published
from formulations.costs.tables import build_tables
from solver.heuristics.balance import SplitSpace
from tests.chain_instances import all_splits
from tests.seeds import one_each
from tests.small_instances import random_instance


@pytest.mark.parametrize("seed", one_each(range(12), 6))
def test_cases_agree_with_brute_force(seed: int) -> None:
    """The optimum and the least largest stage over all splits that fit."""
    instance = random_instance(seed)
    for case in cases("tiny", instance, limit_s=60):
        tables = build_tables(instance, case.config)
        config_study = ConfigStudy(tables)
        stages = SplitSpace(tables).balance(case.order, config_study.shares)
        splits = [
            split
            for split in all_splits(tables.num_layers, tables.config.pp)
            if all(stages.allowed(k, *ends) for k, ends in enumerate(pairwise(split)))
        ]
        steps_ns = [config_study.step_ns(case.order, split) for split in splits]
        assert case.optimum_ns == case.bound_ns == min(steps_ns)
        assert case.exact_stage_ns == min(max(stages.times_ns(split)) for split in splits)
        assert case.exact_stage_ns <= case.minmax_stage_ns
        assert {case.minmax_ns, case.exact_ns} <= {*steps_ns}


@pytest.mark.slow
def test_published_plans_are_held_against_their_own_optimum(reference: Path) -> None:
    """21 plans, none below the optimum of its configuration and order."""
    plans = list(published(reference, limit_s=60))
    assert len(plans) == 21
    assert all(plan.bound_ns <= plan.optimum_ns <= plan.step_ns for plan in plans)
