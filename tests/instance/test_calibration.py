"""Promises of formulations.instance.calibration: which factor holds where."""

import pytest

from formulations.errors import InstanceError
from formulations.instance.calibration import Calibration
from tests.instance_texts import MINIMAL, parsed

CALIBRATION = Calibration(
    source="t",
    factors={"block": {"X": {1: {1: 2.0}, 2: {1: 0.5}}, "Y": {1: {1: 3.0}}}},
)


def test_factors_of_a_shape_or_the_geometric_mean() -> None:
    """sqrt(2 * 0.5) = 1 where the shape has none; none for a kind without any."""
    shapes = (("X", 1), ("X", 2), ("Y", 1))
    assert [CALIBRATION.factor("block", gpu, tp, 1) for gpu, tp in shapes] == [2.0, 0.5, 3.0]
    assert CALIBRATION.factor("block", "X", 1, 8) == pytest.approx(1.0)
    assert CALIBRATION.factor("head", "X", 1, 1) is None
    assert CALIBRATION.factor("block", "Z", 1, 1) is None


def test_shapes_that_were_measured() -> None:
    """On that GPU type, of any layer kind."""
    assert CALIBRATION.was_measured("X", 2, 1)
    assert not CALIBRATION.was_measured("Y", 2, 1)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ("{block: {A100-40: {1: {1: 1.1}}}}", None),
        ("{blok: {A100-40: {1: {1: 1.1}}}}", r"unknown layer kind 'blok' \(did you mean block"),
        ("{block: {A10: {1: {1: 1.1}}}}", r"unknown GPU 'A10' "),
    ],
)
def test_factors_are_of_the_models_layers_on_the_clusters_gpus(
    factors: str, message: str | None
) -> None:
    """What they are of is named where they stand."""
    text = f"{MINIMAL}calibration: {{source: x, factors: {factors}}}\n"
    if message is None:
        assert parsed(text).calibration is not None
        return
    with pytest.raises(InstanceError, match=message):
        parsed(text)
