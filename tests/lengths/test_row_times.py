"""Promises of formulations.lengths.row_times: the least a l^2 + b l + c above what is known."""

from random import Random

import pytest

from formulations.lengths.problem import RowTime
from formulations.lengths.row_times import Point, RowCosts, instance_of_time, upper_fit
from tests.hand_made import uniform_plans
from tests.mixed_rows import small


def time_ns(curve: RowTime, point: Point) -> float:
    """What the curve says of a point."""
    whole = curve.per_square_ns * point.square + curve.per_token_ns * point.tokens
    return whole + curve.per_row_ns


def test_one_point_is_met() -> None:
    """A single time has no curve of its own, but is met."""
    point = Point(4096**2, 4096, 80_000_000)
    curve, above = upper_fit([point])
    assert time_ns(curve, point) == pytest.approx(80_000_000, rel=1e-6)
    assert above == pytest.approx(0, abs=1e-6)


def test_quadratic_times_are_met() -> None:
    """Of 0.5 l^2 + 100 l + 7000 the fit is that, and nothing above it."""
    lengths = (512, 1024, 4096, 8192)
    points = [Point(n * n, n, n * n // 2 + 100 * n + 7000) for n in lengths]
    curve, above = upper_fit(points)
    assert curve.per_square_ns == pytest.approx(0.5)
    assert curve.per_token_ns == pytest.approx(100)
    assert curve.per_row_ns == pytest.approx(7000, abs=2)
    assert above < 1e-6


def test_bug_two_rows_left_short_sequences_without_a_time() -> None:
    """Of l^2 + 1000 l the rows of 100 and 1000 tokens are met by 1.909 l^2 + 90,909, too.

    By that ten sequences of 100 in a row take 281,818 ns, and not 1,100,000.
    """
    curve, above = upper_fit([Point(10**4, 100, 110_000), Point(10**6, 1000, 2_000_000)])
    assert curve.per_square_ns == pytest.approx(1)
    assert curve.per_token_ns == pytest.approx(1000)
    assert curve.per_row_ns <= 1
    assert above < 1e-5


@pytest.mark.parametrize("seed", range(10))
def test_no_point_is_above_the_curve(seed: int) -> None:
    """Whatever was measured takes no longer than the curve says, nor less than it says of it."""
    random = Random(seed)
    lengths = random.sample(range(1, 40_000), random.randint(1, 12))
    points = [Point(n * n, n, random.randint(1, 10**12)) for n in lengths]
    curve, above = upper_fit(points)
    times = [time_ns(curve, point) / point.time_ns for point in points]
    assert min(times) >= 1 - 1e-12
    assert max(times) == pytest.approx(1 + above)
    assert min(curve.per_square_ns, curve.per_token_ns, curve.per_row_ns) >= 0


@pytest.mark.parametrize("rows", ["packed", "padded"])
def test_times_of_rows_are_worked_out_by_sequences(
    rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of one sequence takes t^2 / 2 + 100 t + 7000 ns, of n short ones 100 n t + 7000."""
    instance = small(**{"count: 2}]": f"count: 2}}]\n  rows: {rows}"})
    costs = RowCosts(instance, next(iter(uniform_plans(instance_of_time(instance)))))

    def slowest_ns(tokens: int, sequences: int = 1) -> list[int]:
        square = tokens * tokens // 2 if sequences == 1 else 0
        return [square + 100 * sequences * tokens + 7000]

    monkeypatch.setattr(costs, "slowest_ns", slowest_ns)
    curve, above = costs.row_time(0, 4096)
    if rows == "padded":
        known = tuple((n, slowest_ns(n)[0]) for n in (512, 2048))
        assert (curve, above) == (RowTime(rows_ns=known), 0.0)
        return
    fields = curve.per_square_ns, curve.per_token_ns, curve.per_row_ns
    assert above < 1e-6
    assert fields == pytest.approx((0.5, 100, 7000), rel=1e-3)
