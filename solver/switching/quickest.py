"""The quickest switch plan that is found, what no plan beats, and what the published rule takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from formulations.switching.switch import Sending, Switch
from solver.switching.balancing import balanced_plan, joined
from solver.switching.prices import SwitchBound, forced_bound
from solver.switching.published import published_plan
from solver.switching.relaxation import relaxed_plan

#: Where the gap of a plan is no larger, a linear programme is not worth its time.
SMALL_GAP = 1e-6


@dataclass(frozen=True)
class SwitchPlan:
    """Sendings and their time.

    bound: no plan is quicker. published_ns: what the plan of the published rule takes.
    """

    sendings: tuple[Sending, ...]
    time_ns: int
    bound: SwitchBound
    published_ns: int


def plan_switch(switch: Switch, time_limit_s: float | None = None) -> SwitchPlan:
    """The best of balancing, linear programming and the published rule."""
    published = published_plan(switch)
    published_ns = switch.time_ns(published)
    best, time_ns, bound = _quick_plan(switch, time_limit_s)
    if published_ns < time_ns:
        best, time_ns = joined(published), published_ns
    return SwitchPlan(tuple(best), time_ns, bound, published_ns)


def _quick_plan(
    switch: Switch, time_limit_s: float | None = None
) -> tuple[Sequence[Sending], int, SwitchBound]:
    """The better of balancing and linear programming, its time, and its bound."""
    if not switch.demands:
        return (), 0, SwitchBound(0, {})
    bound = forced_bound(switch)
    best = balanced_plan(switch, bound.time_ns - switch.latency_ns)
    time_ns = switch.time_ns(best)
    if time_ns <= bound.time_ns * (1 + SMALL_GAP):
        return best, time_ns, bound
    relaxed = relaxed_plan(switch, time_limit_s)
    if relaxed is None:
        return best, time_ns, bound
    relaxed_ns = switch.time_ns(relaxed[0])
    if relaxed_ns < time_ns:
        best, time_ns = joined(relaxed[0]), relaxed_ns
    return best, time_ns, max(bound, relaxed[1], key=lambda one: one.time_ns)
