"""The quickest switch plan that is found, what no plan beats, and what the published rule takes."""

from dataclasses import dataclass

from formulations.switching.switch import Sending, Switch
from solver.switching.balancing import balanced_plan, joined
from solver.switching.prices import SwitchBound, forced_bound
from solver.switching.published import published_plan
from solver.switching.relaxation import relaxed_plan

#: Where the gap of a balanced plan is no larger, a linear programme is not worth its time.
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
    if not switch.demands:
        return SwitchPlan((), 0, SwitchBound(0, {}), 0)
    published, bound = published_plan(switch), forced_bound(switch)
    plans = [balanced_plan(switch), published]
    if min(map(switch.time_ns, plans)) > bound.time_ns * (1 + SMALL_GAP):
        relaxed = relaxed_plan(switch, time_limit_s)
        if relaxed is not None:
            plans.append(relaxed[0])
            bound = max(bound, relaxed[1], key=lambda one: one.time_ns)
    best = min(plans, key=switch.time_ns)
    return SwitchPlan(tuple(joined(best)), switch.time_ns(best), bound, switch.time_ns(published))
