"""Stages hold whole blocks: trial times by hand; the optimum is held against in closed forms."""

import numpy as np
import pytest

from solver.bounds.closed_forms import closed_forms
from solver.bounds.packing import Packing, packed_ns, refuted
from tests.bounds.drawn import drawn_configs
from tests.bounds.test_closed_forms import AFTER_NS, OPTIMIZER_NS, bounds_of
from tests.chain_instances import FAST, SLOW, chain_instance, chain_tables
from tests.recorded import as_recorded


@pytest.mark.usefixtures("round_times")
@pytest.mark.parametrize(
    ("blocks", "nodes", "least_ns"),
    [
        # Three blocks on two equal stages: 9 ms, and two blocks on stage 0, 8/3 * 6 ms = 16 ms.
        # They are 18 ms on stage 1. Stage 0 has three layers at least, as stage 1 has one block.
        (3, [SLOW, SLOW], 25_000_000 + AFTER_NS + OPTIMIZER_NS),
        # Four blocks on a fast and a slow GPU, 1.5 and 3 ms each. Two and two, as three on the fast
        # one: 3 * 4.5 ms, or 8/3 * 4.5 = 12 ms on stage 0. So three on stage 0, 12 ms, and a
        # latency of 3 * 1.5 + 3 ms: 19.5 ms, with the optimizer of three layers.
        (4, [FAST, SLOW], 19_500_000 + AFTER_NS + OPTIMIZER_NS),
    ],
)
def test_packing_counts_whole_blocks(
    blocks: int, nodes: list[tuple[str, float, float]], least_ns: int
) -> None:
    """No plan is below that time; from there on nothing is said."""
    packing = Packing(bounds_of(chain_tables(chain_instance([1] * blocks, nodes))))
    assert packing.refutes(np.array([least_ns]))[0]
    assert not packing.refutes(np.array([least_ns + 1]))[0]


def test_bounds_are_the_recorded_ones() -> None:
    """From the closed forms on, and what is refuted at a third more."""
    figures: dict[str, object] = {}
    for name, (instance, configs, times) in drawn_configs().items():
        forms = closed_forms(instance, configs, times)
        known = [form.bound_ns for form in forms]
        above = [ns * 4 // 3 for ns in known]
        flags = refuted(instance, configs, times, above)
        figures[name] = [sorted(packed_ns(instance, configs, times, known)), sum(flags)]
    assert packed_ns(instance, [], [], []) == refuted(instance, [], [], []) == []
    as_recorded("packing", figures)
