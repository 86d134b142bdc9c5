"""The closed forms of the verifier: never above the best plan, and close to it."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from formulations.space import PlanSpace
from solver.verify.bounds import Prover
from solver.verify.closed_forms import ClosedForms, _Blocks, refuted
from tests import brute_force
from tests.best_plans import all_tables, refuted_share
from tests.recorded import as_recorded
from tests.seeds import few_and_many
from tests.small_instances import random_instance


def shown(blocks: _Blocks, below_ns: int) -> bool:
    return bool(blocks.refuted(np.array([below_ns - 1]))[0])


@pytest.mark.parametrize("scatter_gather", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(30), 10))
def test_bounds_never_exceed_the_optimum(seeds: Sequence[int], scatter_gather: bool) -> None:
    figures: dict[str, list[object]] = {}
    search = {"scatter_gather": scatter_gather}
    for tables in all_tables(random_instance(seed).but(search=search) for seed in seeds):
        best = brute_force.optimum_ns(tables)
        if best is None:
            continue
        prover = Prover(PlanSpace(tables.instance))
        forms = ClosedForms(prover, [tables.config])
        assert forms.work_ns()[0] <= best
        assert not refuted(forms, [best + 1])[0]
        shares = [
            refuted_share(partial(shown, _Blocks(forms, alike)), best) for alike in (True, False)
        ]
        name = f"{tables.instance.name}, scatter {scatter_gather}"
        figures.setdefault(name, []).append([forms.work_ns()[0], *shares])
    as_recorded("verify_closed_forms", figures)
