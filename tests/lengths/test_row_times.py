"""Promises of formulations.lengths.row_times: the least a l^2 + b l + c above what is known."""

from itertools import permutations
from random import Random

import pytest

from formulations.lengths import row_times
from formulations.lengths.problem import RowTime
from tests.conftest import text_of
from tests.hand_made import uniform_plans
from tests.mixed_lengths import small
from tests.recorded import Cases, as_recorded, digest, recorded


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
    fit, above = row_times.upper_fit([row_times.Point(n * n, n, time_ns) for n, time_ns in points])
    assert factors(fit) == pytest.approx(curve, rel=1e-6, abs=2)
    assert above < 1e-5


@pytest.mark.parametrize("seed", range(10))
def test_no_point_is_above_the_curve(seed: int) -> None:
    """Whatever was measured takes no longer than the curve says, nor less than it says of it."""
    random = Random(seed)
    lengths = random.sample(range(1, 40_000), random.randint(1, 12))
    points = [row_times.Point(n * n, n, random.randint(1, 10**12)) for n in lengths]
    curve, above = row_times.upper_fit(points)
    square, token, row = factors(curve)
    times = [(square * p.square + token * p.tokens + row) / p.time_ns for p in points]
    assert min(times) >= 1 - 1e-12
    assert max(times) == pytest.approx(1 + above)
    assert min(square, token, row) >= 0


@pytest.mark.parametrize("rows", ["packed", "padded"])
@recorded("row_times")
def test_times_of_rows_are_the_recorded_ones(rows: str) -> Cases:
    """Of every plan with all micro-batches alike, as a strategy; how long rows may be."""
    instance = row_times.instance_of_time(small(**{"count: 2}]": f"count: 2}}]\n  rows: {rows}"}))
    for n, plan in enumerate(uniform_plans(instance)):
        costs = row_times.RowCosts(instance, plan)
        made = costs.strategy(row_times.plan_name(plan), [4096 - 512 * (n % 3)] * plan.config.dp)
        curves = [replica.time for replica in made.strategy.replicas]
        factors_of = [round(factor, 4) for curve in curves for factor in factors(curve)[:2]]
        fixed = [[curve.per_row_ns // 1000, *curve.rows_ns] for curve in curves]
        once = [made.strategy.visit_ns, made.strategy.anchor_ns, round(made.above, 6)]
        slowest = [
            costs.slowest_ns(2048, 2),
            costs.fits(8192, 0),
            row_times.row_multiple(plan.config),
        ]
        longest = [row_times.longest_row(instance, plan.config, m.__ge__) for m in (1, 5000)]
        yield f"{n} {rows}", [made.strategy.name, *once, *slowest, longest, factors_of, fixed]


MEASURED = text_of("measured_strategies.txt")


def test_measured_strategies_are_the_recorded_ones() -> None:
    names = ("long", "full", "curved", "short")
    switches = [
        f"    - {{leave: {a}, enter: {b}, parameters: {i + 1} ms, gradients: {j + 1} s}}\n"
        for (i, a), (j, b) in permutations(enumerate(names), 2)
    ]
    instance = small(**{"count: 2}]": f"count: 2}}]{MEASURED}{''.join(switches)}"})
    mixed, above = row_times.measured_problem(instance)
    figures: dict[str, object] = {"measured switches": digest(mixed.switching)}
    for strategy, share in zip(mixed.strategies, above, strict=True):
        curves = [[f"{f:.6g}" for f in factors(replica.time)] for replica in strategy.replicas]
        once = [strategy.visit_ns, strategy.anchor_ns, *strategy.atoms_ns, round(share, 6)]
        figures[f"measured {strategy.name}"] = [strategy.dp, curves, once]
    as_recorded("row_times", figures)
