"""Promises of formulations.instance.profile, worked out by hand; bad factors: tests/data."""

import pytest

from formulations.instance import Profile, ProfileEntry
from formulations.instance.profile import Calibration, covered_degrees
from tests.conftest import present
from tests.instance.resolved import MINIMAL, PROFILE, broken, parsed, shipped
from tests.recorded import Cases, digest, recorded

test_lines = broken("profile", "calibration")


def curve(**times: float) -> Profile:
    """Times of 1 and 2 seconds at micro-batches 2 and 6."""
    fields = {"kind": "block", "gpu": "X", "tp": 1, **times}
    entries = [
        ProfileEntry(micro_batch=b, forward_s=s, backward_s=2 * s, **fields)  # type: ignore[arg-type]
        for b, s in ((6, 2.0), (2, 1.0))
    ]
    return Profile(source="t", includes_tensor_parallel_traffic=True, entries=tuple(entries))


def test_between_sizes_linear_beyond_them_in_proportion() -> None:
    """Refused where a curve is missing, unless the analytic model completes the profile."""
    times = [curve().time_s("block", "X", 1, b) for b in (6, 3, 1, 12)]
    assert [seconds.forward for seconds, _ in times] == [2.0, 1.25, 0.5, 4.0]  # 3: a quarter on
    assert [origin for _, origin in times] == ["measured", "interpolated", "scaled", "scaled"]
    assert curve(weight_s=0.5).time_s("block", "X", 1, 12)[0].weight == 1.0
    # at most as long as the whole backward pass
    all_weights = parsed(MINIMAL + PROFILE.replace("9.0]", "9.0, 9.0]")).profile
    seconds, _ = present(all_weights).time_s("block", "A100-40", 1, 2)
    assert seconds.weight == seconds.backward
    with pytest.raises(KeyError, match="head on X at tp 1"):
        curve().time_s("head", "X", 1, 1)
    assert not curve().has_time("block", "X", 2)
    assert curve().but(completed=True).has_time("block", "X", 2)


@recorded("profile")
def test_profiles_are_the_recorded_ones() -> Cases:
    """Of shipped files: all times, and those between and beyond them; which curves there are."""
    # In `ratio` a bare time is the forward pass; degree 4 has times of the blocks alone.
    for name, instance in (shipped() | {"ratio": parsed(MINIMAL + PROFILE)}).items():
        if profile := instance.profile:
            first, gpus = profile.entries[0], ("A100-40", "A10", "Y")
            curve_of = first.kind, first.gpu, first.tp
            times = [digest(profile.time_s(*curve_of, b)) for b in (1, 3, 5, 100)]
            has = [[profile.measures(gpu), profile.has_time(first.kind, gpu, 2)] for gpu in gpus]
            kinds = sorted({entry.kind for entry in profile.entries})
            degrees = covered_degrees(profile, kinds, instance.cluster, range(1, 17))
            yield name, [digest(profile), len(profile.entries), times, has, degrees]


CALIBRATION = Calibration(
    source="t", factors={"block": {"X": {1: {1: 2.0}, 2: {1: 8.0}}, "Y": {1: {1: 3.0}}}}
)


def test_factors_of_a_shape_or_the_geometric_mean() -> None:
    """sqrt(2 * 8) = 4 where the shape has none; none for a kind without any."""
    shapes = (("X", 1), ("X", 2), ("Y", 1))
    assert [CALIBRATION.factor("block", gpu, tp, 1) for gpu, tp in shapes] == [2.0, 8.0, 3.0]
    assert CALIBRATION.factor("block", "X", 1, 8) == pytest.approx(4.0)
    assert CALIBRATION.factor("head", "X", 1, 1) is CALIBRATION.factor("block", "Z", 1, 1) is None
    # on that GPU type, of any layer kind
    assert CALIBRATION.was_measured("X", 2, 1)
    assert not CALIBRATION.was_measured("Y", 2, 1)
