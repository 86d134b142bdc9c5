"""The rules of a recovery, by hand."""

from solver.replay.policy import Recovery


def test_a_neighbour_s_help_takes_longer() -> None:
    """Three halves of 5 ns, rounded up to 8; as long as usual without a slowdown."""
    assert Recovery(slowdown_percent=150).slowed_ns(5) == 8
    assert Recovery().slowed_ns(5) == 5
