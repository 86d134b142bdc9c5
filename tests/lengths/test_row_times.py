"""Promises of formulations.lengths.row_times: the least a l^2 + b l + c above what is known."""

from random import Random

import pytest

from formulations.lengths.problem import RowTime
from formulations.lengths.row_times import Point, RowCosts, instance_of_time, upper_fit
from tests.hand_made import uniform_plans
from tests.mixed_rows import small


def factors(curve: RowTime) -> tuple[float, float, float]:
    return curve.per_square_ns, curve.per_token_ns, curve.per_row_ns


@pytest.mark.parametrize(
    ("points", "curve"),
    [
        # 0.5 l^2 + 100 l + 7000
        ([(n, n * n // 2 + 100 * n + 7000) for n in (512, 1024, 4096)], (0.5, 100, 7000)),
        # Of l^2 + 1000 l rows of 100 and 1000 tokens are met by 1.909 l^2 + 90,909, too: by that
        # ten sequences of 100 in a row take 281,818 ns, and not 1,100,000.
        ([(100, 110_000), (1000, 2_000_000)], (1, 1000, 0)),
    ],
)
def test_bug_two_rows_left_short_sequences_without_a_time(
    points: list[tuple[int, int]], curve: tuple[float, float, float]
) -> None:
    fit, above = upper_fit([Point(n * n, n, time_ns) for n, time_ns in points])
    assert factors(fit) == pytest.approx(curve, rel=1e-6, abs=2)
    assert above < 1e-5


@pytest.mark.parametrize("seed", range(10))
def test_no_point_is_above_the_curve(seed: int) -> None:
    """Whatever was measured takes no longer than the curve says, nor less than it says of it."""
    random = Random(seed)
    lengths = random.sample(range(1, 40_000), random.randint(1, 12))
    points = [Point(n * n, n, random.randint(1, 10**12)) for n in lengths]
    curve, above = upper_fit(points)
    square, token, row = factors(curve)
    times = [(square * p.square + token * p.tokens + row) / p.time_ns for p in points]
    assert min(times) >= 1 - 1e-12
    assert max(times) == pytest.approx(1 + above)
    assert min(square, token, row) >= 0


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
    assert above < 1e-6
    if rows == "padded":
        assert curve == RowTime(rows_ns=tuple((n, slowest_ns(n)[0]) for n in (512, 2048)))
    else:
        assert factors(curve) == pytest.approx((0.5, 100, 7000), rel=1e-3)
