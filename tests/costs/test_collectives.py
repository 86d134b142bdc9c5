"""Rings, by hand."""

import numpy as np
import pytest

from formulations.costs.collectives import ALL_REDUCE, HALF, ring_s, wire_ns
from formulations.instance import Link


def test_an_all_reduce_among_four() -> None:
    """8 GB over 4 GB/s: 2 x 3/4 x 8 / 4 = 3 s, and six starts of 0.5 s; half of it one way."""
    link = Link(bandwidth_bytes_per_s=4e9, latency_s=0.5)
    assert ring_s(ALL_REDUCE, 4, 8e9, link) == pytest.approx(3 + 3)
    assert ring_s(HALF, 4, 8e9, link) == pytest.approx(1.5 + 1.5)
    assert ring_s(ALL_REDUCE, 1, 8e9, link) == 0


def test_bytes_on_the_wire_round_up_one_by_one() -> None:
    """At 1.5 ns a byte 0, 1, 2, 3 take 0, 2, 3, 5 ns: 2 and 4 are whole, 1.5 and 4.5 are not."""
    assert wire_ns(np.array([0, 1, 2, 3]), 1.5e-9).tolist() == [0, 2, 3, 5]
