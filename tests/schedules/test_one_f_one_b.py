"""1F1B, operation by operation."""

import numpy as np

from formulations.schedules.one_f_one_b import missed, order


def words(p: int, k: int, m: int) -> str:
    """Operations of a stage as F0 F1 B0 ..."""
    return " ".join(f"{kind.name[0]}{i}" for kind, _, i in order(p, k, m))


def test_three_stages() -> None:
    """Stage k of 3 warms up with 2 - k forwards (PipeDream; Narayanan et al. 2021, figure 4)."""
    assert words(3, 0, 4) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert words(3, 1, 4) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert words(3, 2, 4) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_fewer_micro_batches_than_stages() -> None:
    """A warm-up longer than the batch is the whole batch."""
    assert words(4, 0, 2) == "F0 F1 B0 B1"


def test_latency_paths_miss_the_warm_up() -> None:
    """Stage 0 of 3 with 4 micro-batches: F1 F2 before B0 are missed, or as many backwards at last.

    With 2 micro-batches there is one besides the path's own; the last stage misses none.
    """
    for (k, m), expected in {(0, 4): 2, (1, 4): 1, (2, 4): 0, (0, 2): 1}.items():
        down, up = missed(*(np.array([x]) for x in (3, k, m, 1)))
        assert [int(x[0]) for x in down] == [expected, 0, 0]
        assert [int(x[0]) for x in up] == [0, expected, 0]
