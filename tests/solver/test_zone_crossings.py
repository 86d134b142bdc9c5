"""What reports say of a plan's traffic between zones."""

import pytest

from formulations.decisions import Decisions
from formulations.instance import ZoneLink
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.report.stages import zone_lines
from tests.equal_nodes import equal_nodes
from tests.hand_made import result_of

SLOW = ZoneLink(bandwidth_bytes_per_s=1.25e8, latency_s=0.02, kind="measured", source="iperf, 2026")


def lines(zones: str, dp: int, pp: int) -> list[str]:
    """Of one node per slot, in these zones; x and z have a link of their own."""
    own = {"zx": SLOW} if {"x", "z"} <= set(zones) else {}
    tables = equal_nodes(len(zones), 1, 1, dp, pp, zones=zones, own=own)
    cuts = tuple(round(4 * k / pp) for k in range(pp + 1))
    plan = Decisions(tuple(range(len(zones))), cuts, (4 // dp,) * dp).plan(tables)
    document = build_document(result_of(tables.instance, plan), SolveOptions())
    return [": ".join(one) if one[0] else one[1] for one in zone_lines(document)]


ASSUMED = "4.000 Gbit/s, 1.000 ms, assumed by the instance"
MEASURED = "1.000 Gbit/s, 20.00 ms, measured (iperf, 2026)"


@pytest.mark.parametrize(
    ("zones", "dp", "pp", "expected"),
    [
        ("xxyy", 2, 2, [f"zones: x to y: activations after stage 0; {ASSUMED}"]),
        ("xyxy", 2, 2, [f"zones: x to y: gradients of stages 0-1; {ASSUMED}"]),
        (
            "xyzx",
            1,
            4,
            [
                f"zones: x to y: activations after stage 0; {ASSUMED}",
                f"x to z: activations after stage 2; {MEASURED}",
                f"y to z: activations after stage 1; {ASSUMED}",
            ],
        ),
        ("xx", 1, 2, []),
    ],
)
def test_links_are_named_with_what_crosses(
    zones: str, dp: int, pp: int, expected: list[str]
) -> None:
    """Stage by stage, with the figures of each pair's link; without zones there is no line."""
    assert lines(zones, dp, pp) == expected
