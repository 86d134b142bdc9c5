"""Stages hold whole blocks: trial times by hand; the optimum is held against in closed forms."""

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from solver.bounds.packing import Packing
from tests.bounds.test_closed_forms import AFTER_NS, OPTIMIZER_NS, bounds_of
from tests.chain_instances import FAST, SLOW, chain_instance, chain_tables


def refutes(tables: CostTables, below_ns: int) -> bool:
    """Whether packing leaves no plan below this time."""
    return bool(Packing(bounds_of(tables)).refutes(np.array([below_ns]))[0])


@pytest.mark.usefixtures("round_times")
@pytest.mark.parametrize("more", [0, 1])
def test_packing_counts_whole_blocks(more: int) -> None:
    """Three blocks on two equal stages: 9 ms, and two blocks on stage 0, 8/3 * 6 ms = 16 ms.

    They are 18 ms on stage 1. Stage 0 has three layers at least, as stage 1 holds one block only.
    """
    tables = chain_tables(chain_instance([1, 1, 1], [SLOW, SLOW]))
    least_ns = 25_000_000 + AFTER_NS + OPTIMIZER_NS
    assert refutes(tables, least_ns + more) is (more == 0)


@pytest.mark.usefixtures("round_times")
def test_packing_knows_how_many_stages_are_fast() -> None:
    """Four blocks on a fast and a slow GPU, 1.5 and 3 ms each.

    Two and two, as three on the fast one: 3 * 4.5 ms, or 8/3 * 4.5 = 12 ms on stage 0. So three on
    stage 0, 12 ms, and a latency of 3 * 1.5 + 3 ms: 19.5 ms, with the optimizer of four layers.
    """
    tables = chain_tables(chain_instance([1, 1, 1, 1], [FAST, SLOW]))
    least_ns = 19_500_000 + AFTER_NS
    assert refutes(tables, least_ns)
    assert not refutes(tables, 21_000_000)
