"""What a search claims by a closed form is proved again, and refused if it is too high."""

from collections.abc import Sequence
from functools import cache

import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import SearchSpace
from formulations.space import PlanSpace, configs
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import Proof
from solver.search.driver import solve
from solver.verify import verify_document
from solver.verify.bounds import Prover
from solver.verify.cascade import Claim, quick_verdicts
from solver.verify.closed_forms import ClosedForms, refuted
from tests import brute_force
from tests.chain_instances import SLOW, chain_instance
from tests.resealed import forged
from tests.seeds import few_and_many
from tests.small_instances import random_instance

FORMS: list[Proof] = ["work", "filling", "packing"]


@cache
def document() -> PlanDocument:
    """Three blocks on up to four equal GPUs: configurations are closed in all these ways."""
    search = SearchSpace(micro_batch=(1,), recompute=("none",), zero=(0,), idle_nodes=True)
    instance = chain_instance([20, 20, 20], [SLOW] * 4, search)
    return build_document(solve(instance), SolveOptions())


@pytest.mark.parametrize("proof", FORMS)
def test_closed_forms_of_a_search_are_proved_again(proof: Proof) -> None:
    """As they stand the document passes, and the summary counts them."""
    assert any(record.proof == proof for record in document().closed_configs)
    found = verify_document(document())
    assert not found.problems
    assert any("work" in line for line in found.checked)


@pytest.mark.parametrize("proof", FORMS)
def test_closed_form_that_is_too_high_is_refused(proof: Proof) -> None:
    """By half; the record is named."""
    records = enumerate(document().closed_configs)
    index, bound_ns = next((i, one.bound_ns) for i, one in records if one.proof == proof)
    assert bound_ns is not None
    wrong = forged(document(), {f"closed_configs.{index}.bound_ns": bound_ns * 3 // 2})
    problems = verify_document(wrong).problems
    assert any(line.startswith(f"closed_configs[{index}].bound_ns") for line in problems)


def test_whole_blocks_are_proved_without_node_orders() -> None:
    """Three blocks on three stages: work does not show the claim, whole blocks do, but messages."""
    own = next(one for one in document().closed_configs if one.proof == "packing")
    assert own.bound_ns is not None
    prover, below_ns = Prover(PlanSpace(document().instance)), own.bound_ns * 9 // 10
    assert ClosedForms(prover, [own.config]).work_ns()[0] < below_ns
    assert not quick_verdicts(prover, [Claim(0, own.config, below_ns)])[0].open


def some_tables(seeds: Sequence[int], scatter_gather: bool = False) -> list[CostTables]:
    """Costs of all configurations of some tiny instances."""
    found = []
    for one in map(random_instance, seeds):
        instance = one.but(search={"scatter_gather": scatter_gather})
        found += [build_tables(instance, config) for config in configs(instance)]
    return found


@pytest.mark.parametrize("scatter_gather", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(30), 4))
def test_bounds_never_exceed_the_optimum(seeds: Sequence[int], scatter_gather: bool) -> None:
    """No closed-form bound of a configuration is above the best of all its plans."""
    close = planned = 0
    for tables in some_tables(seeds, scatter_gather):
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
