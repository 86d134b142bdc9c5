"""The closed forms of the verifier: never above the best plan, and close to it."""

from itertools import chain, product

import numpy as np
import pytest

from formulations.costs.intervals import Array
from formulations.space import PlanSpace
from solver.verify.bounds import Prover
from solver.verify.closed_forms import ClosedForms, _Blocks, refuted
from tests import brute_force
from tests.best_plans import all_tables, prover_of
from tests.chain_instances import chain_of
from tests.graph.drawn import drawn_configs
from tests.recorded import Cases, digest, recorded
from tests.seeds import one_each
from tests.small_instances import random_instance, with_groups


def largest_refuted(forms: ClosedForms) -> list[list[int]]:
    """Step times in which there is no plan, within 1e-7 of the largest such one; two arguments."""
    found = []
    for alike in (True, False):
        blocks, work_ns = _Blocks(forms, alike), forms.work_ns()
        low, high = 0 * work_ns, 4 * work_ns
        for _ in range(25):
            middle: Array = (low + high) // 2
            shown = blocks.refuted(middle)
            low, high = np.where(shown, middle, low), np.where(shown, high, middle)
        found.append([int(bound_ns) for bound_ns in low])
    return found


@pytest.mark.parametrize("scatter_gather", [False, True])
@pytest.mark.parametrize("seed", one_each(range(30), 30))
@recorded("verify_closed_forms")
def test_bounds_never_exceed_the_optimum(seed: int, scatter_gather: bool) -> Cases:
    """Of random instances, and of chains whose ends have several layers that are no blocks."""
    instance = random_instance(seed).but(search={"scatter_gather": scatter_gather})
    kinds = product(("eebbehbb", "ebbehh"), (2, 3), (False, True))
    chains = (chain_of(*chosen) for chosen in kinds if not seed and scatter_gather)
    for n, tables in enumerate(chain(all_tables([instance]), chains)):
        best = brute_force.optimum_ns(tables)
        if best is not None:
            forms = ClosedForms(prover_of(tables), [tables.config])
            bounds = [*forms.work_ns(), *chain(*largest_refuted(forms))]
            assert max(bounds) <= best
            assert not refuted(forms, np.array([best + 1]))[0]
            yield f"{tables.instance.name} {n}, scatter {scatter_gather}", bounds


@recorded("verify_closed_forms")
def test_bounds_of_larger_clusters_are_the_recorded_ones() -> Cases:
    """The work bound, and of each configuration what is refuted, up to four times its bound.

    As they are, and with memory 300 times slower, where optimizers take long.
    """
    for name, slower in product(("deep 2", "three types 3", "experts 0"), (1, 300)):
        instance, chosen, _ = drawn_configs()[name]
        speeds = [g.gpu.memory_bandwidth_bytes_per_s / slower for g in instance.cluster.groups]
        gpus = [{"memory_bandwidth_bytes_per_s": speed} for speed in speeds]
        prover = Prover(PlanSpace(with_groups(instance, gpu=gpus)))
        forms = ClosedForms(prover, chosen)
        yield f"{name} {slower}", [int(forms.work_ns().sum()), digest(largest_refuted(forms))]
