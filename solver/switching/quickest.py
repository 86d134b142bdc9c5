"""The quickest switch plan that is found, what no plan beats, and what the published rule takes."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from formulations.switching.switch import Sending, Switch
from solver.interrupt import TimeUp, time_up_after
from solver.switching.balancing import balanced_plan, joined
from solver.switching.prices import SwitchBound, forced_bound
from solver.switching.published import published_plan
from solver.switching.relaxation import relaxed_plan

#: Where the gap of a plan is no larger, a linear programme is not worth its time.
SMALL_GAP = 1e-6


@dataclass(frozen=True)
class SwitchPlan:
    """Sendings and their time.

    bound: no plan is quicker. published_ns: what the plan of the published rule takes. interrupted:
    by Ctrl-C, so that there may be a quicker one.
    """

    sendings: tuple[Sending, ...]
    time_ns: int
    bound: SwitchBound
    published_ns: int
    interrupted: bool = False


def plan_switch(switch: Switch, time_limit_s: float | None = None) -> SwitchPlan:
    """The best of balancing, linear programming and the published rule.

    Ctrl-C, and a time limit for the former two, end it with the best until then.
    """
    if not switch.demands:
        return SwitchPlan((), 0, SwitchBound(0, {}), 0)
    published, bound = published_plan(switch), forced_bound(switch)
    published_ns = time_ns = switch.time_ns(published)
    best, interrupted = None, False
    try:
        with suppress(TimeUp), time_up_after(time_limit_s):
            for plan, own in _quick_plans(switch, bound):
                own_ns = switch.time_ns(plan)
                bound = max(bound, own, key=lambda one: one.time_ns)
                if own_ns <= time_ns:
                    best, time_ns = plan, own_ns
                if time_ns <= bound.time_ns * (1 + SMALL_GAP):
                    break
    except KeyboardInterrupt:
        interrupted = True
    sendings = tuple(joined(published) if best is None else best)
    return SwitchPlan(sendings, time_ns, bound, published_ns, interrupted)


def _quick_plans(
    switch: Switch, bound: SwitchBound
) -> Iterator[tuple[Sequence[Sending], SwitchBound]]:
    """By balancing, then by linear programming; each with a bound."""
    yield balanced_plan(switch, bound.time_ns - switch.latency_ns), bound
    relaxed = relaxed_plan(switch)
    if relaxed is not None:
        yield joined(relaxed[0]), relaxed[1]
