"""GPipe, operation by operation."""

from tests.schedules.test_operations import check_devices, check_recorded, words


def test_all_forwards_first() -> None:
    """On every device; latency paths miss nothing."""
    assert words("gpipe", 2, 1, 3) == "F0 F1 F2 B0 B1 B2"
    check_devices("gpipe")
    check_recorded("gpipe")
