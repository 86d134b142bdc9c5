"""The closed forms of the verifier: never above the best plan, and close to it."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import pytest

from formulations.costs.intervals import Array
from formulations.space import PlanSpace
from solver.verify.bounds import Prover
from solver.verify.closed_forms import ClosedForms, _Blocks, refuted
from tests import brute_force
from tests.best_plans import all_tables, refuted_share
from tests.graph.drawn import drawn_configs
from tests.recorded import Cases, as_recorded, digest, recorded
from tests.seeds import few_and_many
from tests.small_instances import random_instance


def largest_refuted(blocks: _Blocks, work_ns: Array) -> list[int]:
    """Step times in which there is no plan, within 1e-7 of the largest such one."""
    low, high = 0 * work_ns, 4 * work_ns
    for _ in range(25):
        middle = (low + high) // 2
        shown = blocks.refuted(middle)
        low, high = np.where(shown, middle, low), np.where(shown, high, middle)
    return [int(bound_ns) for bound_ns in low]


def shown(blocks: _Blocks, below_ns: int) -> bool:
    return bool(blocks.refuted(np.array([below_ns - 1]))[0])


@pytest.mark.parametrize("scatter_gather", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(30), 30))
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


@recorded("verify_closed_forms")
def test_bounds_of_larger_clusters_are_the_recorded_ones() -> Cases:
    """The work bound, and of each configuration what is refuted, up to four times its bound.

    As they are, and with memory 300 times slower, where optimizers take long.
    """
    for name, slower in product(("deep 2", "three types 3", "experts 0"), (1, 300)):
        instance, chosen, _ = drawn_configs()[name]
        groups = []
        for group in instance.cluster.groups:
            speed = group.gpu.memory_bandwidth_bytes_per_s / slower
            groups.append(group.but(gpu={"memory_bandwidth_bytes_per_s": speed}))
        prover = Prover(PlanSpace(instance.but(cluster={"groups": tuple(groups)})))
        forms = ClosedForms(prover, chosen)
        work_ns = forms.work_ns()
        shown = [largest_refuted(_Blocks(forms, alike), work_ns) for alike in (True, False)]
        yield f"{name} {slower}", [int(work_ns.sum()), digest(shown)]
