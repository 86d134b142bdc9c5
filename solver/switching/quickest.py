"""The quickest switch plan that is found, what no plan beats, and what the published rule takes."""

from contextlib import suppress
from dataclasses import dataclass

from formulations.switching.port_bound import PortBound, port_bound
from formulations.switching.published import published_plan
from formulations.switching.switch import Sending, Switch
from solver.interrupt import TimeUp, time_up_after
from solver.switching.balancing import balanced_plan, joined


@dataclass(frozen=True)
class SwitchPlan:
    """Sendings and their time.

    bound: no plan is quicker. published_ns: what the plan of the published rule takes. interrupted:
    by Ctrl-C, so that there may be a quicker one.
    """

    sendings: tuple[Sending, ...]
    time_ns: int
    bound: PortBound
    published_ns: int
    interrupted: bool = False


def plan_switch(switch: Switch, time_limit_s: float | None = None) -> SwitchPlan:
    """The better of balancing and the published rule.

    Ctrl-C, and a time limit for balancing, leave the published rule's plan.
    """
    bound = port_bound(switch)
    if not switch.demands:
        return SwitchPlan((), 0, bound, 0)
    published = published_plan(switch)
    published_ns = switch.time_ns(published)
    sendings, time_ns, interrupted = joined(published), published_ns, False
    try:
        with suppress(TimeUp), time_up_after(time_limit_s):
            balanced = balanced_plan(switch, bound.time_ns - switch.latency_ns)
            balanced_ns = switch.time_ns(balanced)
            if balanced_ns <= published_ns:
                sendings, time_ns = balanced, balanced_ns
    except KeyboardInterrupt:
        interrupted = True
    return SwitchPlan(tuple(sendings), time_ns, bound, published_ns, interrupted)
