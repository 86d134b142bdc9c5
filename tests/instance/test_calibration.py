"""Promises of formulations.instance.calibration: which factor holds where; bad ones: tests/data."""

import pytest

from formulations.errors import InstanceError
from formulations.instance.calibration import Calibration, check_calibration
from formulations.instance.documents import Place, json_document
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
    assert CALIBRATION.factor("head", "X", 1, 1) is CALIBRATION.factor("block", "Z", 1, 1) is None
    # on that GPU type, of any layer kind
    assert CALIBRATION.was_measured("X", 2, 1)
    assert not CALIBRATION.was_measured("Y", 2, 1)


def test_factors_are_of_the_models_layers_on_the_clusters_gpus() -> None:
    """What they are of is named."""
    cluster, place = parsed(MINIMAL).cluster, Place(json_document("{}", "f"))
    for kinds, found in ((["head"], "layer kind 'block'"), (["block"], "GPU 'X'")):
        with pytest.raises(InstanceError, match=f"unknown {found}"):
            check_calibration(CALIBRATION, place, kinds, cluster)
