"""ZB-H1, operation by operation."""

from tests.schedules.test_operations import check_devices, check_recorded, words


def test_four_stages() -> None:
    """Stage k puts off k weight gradients (Qi et al., ICLR 2024, figure 2, top)."""
    assert words("zb-h1", 4, 0, 5) == "F0 F1 F2 F3 B0 W0 F4 B1 W1 B2 W2 B3 W3 B4 W4"
    assert words("zb-h1", 4, 1, 5) == "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 B3 W2 B4 W3 W4"
    assert words("zb-h1", 4, 3, 5) == "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 W2 W3 W4"


def test_order_and_what_paths_miss() -> None:
    """A B is followed by the oldest W once more than k wait, or than there are pairs."""
    check_devices("zb-h1")
    check_recorded("zb-h1")
