"""What a device does, in words."""

from formulations.schedules.operations import Kind, Operation


def test_kinds_are_rows() -> None:
    """Forwards, backwards, weight gradients: the order of a graph's index and weights."""
    assert [kind.value for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT)] == [0, 1, 2]
    assert tuple(Operation(Kind.WEIGHT, 3, 1)) == (2, 3, 1)
