"""1F1B, operation by operation."""

from tests.schedules.test_operations import check_devices, check_recorded, words


def test_three_stages() -> None:
    """Stage k of 3 warms up with 2 - k forwards (PipeDream; Narayanan et al. 2021, figure 4)."""
    assert words("1f1b", 3, 0, 4) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert words("1f1b", 3, 1, 4) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert words("1f1b", 3, 2, 4) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_greedy_order_and_what_paths_miss() -> None:
    """At most p - k micro-batches are in flight; a warm-up longer than the batch is the batch."""
    check_devices("1f1b")
    check_recorded("1f1b")
