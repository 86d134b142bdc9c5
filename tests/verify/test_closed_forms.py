"""The closed forms of the verifier: never above the best plan, and close to it."""

from collections.abc import Sequence

import pytest

from formulations.instance import SearchSpace
from formulations.space import PlanSpace
from solver.search.driver import solve
from solver.verify.bounds import Prover
from solver.verify.cascade import Claim, quick_verdicts
from solver.verify.closed_forms import ClosedForms, _Blocks, refuted
from tests import brute_force
from tests.best_plans import all_tables
from tests.chain_instances import SLOW, chain_instance
from tests.seeds import few_and_many
from tests.small_instances import random_instance


def test_whole_blocks_are_proved_without_node_orders() -> None:
    """Three blocks on three stages: work does not show the claim, whole blocks do, but messages."""
    search = SearchSpace(micro_batch=(1,), recompute=("none",), zero=(0,), idle_nodes=True)
    instance = chain_instance([20, 20, 20], [SLOW] * 4, search)
    [(config, bound_ns)] = [
        (record.config, record.bound_ns * 9 // 10)
        for record in solve(instance).log.configs
        if record.proof == "packing" and record.bound_ns is not None
    ][:1]
    prover = Prover(PlanSpace(instance))
    assert ClosedForms(prover, [config]).work_ns()[0] < bound_ns
    assert _Blocks(ClosedForms(prover, [config]), True).used.sum() == 3  # of four groups
    assert not quick_verdicts(prover, [Claim(0, config, bound_ns)])[0].open


@pytest.mark.parametrize("scatter_gather", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(30), 6))
def test_bounds_never_exceed_the_optimum(seeds: Sequence[int], scatter_gather: bool) -> None:
    """No closed-form bound of a configuration is above the best of all its plans."""
    close = planned = 0
    search = {"scatter_gather": scatter_gather}
    for tables in all_tables(random_instance(seed).but(search=search) for seed in seeds):
        best = brute_force.optimum_ns(tables)
        if best is None:
            continue
        prover = Prover(PlanSpace(tables.instance))
        forms = ClosedForms(prover, [tables.config])
        assert forms.work_ns()[0] <= best
        assert not refuted(forms, [best + 1])[0]
        close += bool(forms.work_ns()[0] > 0.9 * best or refuted(forms, [int(0.9 * best)])[0])
        planned += 1
    assert close > planned / 2 > 0
