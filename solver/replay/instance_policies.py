"""All policies for one instance; plans and templates are made when a policy first asks for them."""

import time
from dataclasses import dataclass, field
from functools import cached_property

from formulations.errors import PlannerError
from formulations.instance import Instance
from solver.options import SolveOptions
from solver.replay.fleet_policy import FleetPlanner, fleet_policy
from solver.replay.planned import Planner, planned_policy, whole_states
from solver.replay.policy import InFlight, Policy
from solver.replay.trace import Trace
from solver.search.progress import Report


@dataclass(frozen=True)
class PolicyOptions:
    """What may be chosen.

    faults: failures at once that oobleck and ours are to survive. pause_ns: after a failure; None:
    as published for a model of this size. horizon_ns: time to the next failure that ours reckons
    with; None: the mean of the trace. search: for the plans of varuna and bamboo; its time limit is
    for all that is planned.
    """

    in_flight: InFlight = "lost"
    faults: int = 1
    pause_ns: int | None = None
    horizon_ns: int | None = None
    search: SolveOptions = field(default_factory=SolveOptions)


def mean_interval_ns(trace: Trace) -> int:
    """The run divided by its failures, the end counted as one."""
    failures = sum(event.kind == "fail" for event in trace.events)
    return trace.end_ns // (failures + 1)


class InstancePolicies:
    """Policies of one instance."""

    def __init__(self, instance: Instance, options: PolicyOptions, report: Report | None) -> None:
        self.instance = instance
        self.options = options
        self._report = report
        self._planners: dict[str, Planner] = {}
        self._begin = time.monotonic()

    def _left_s(self) -> float | None:
        """Seconds left of the time limit; None without one."""
        limit_s = self.options.search.time_limit_s
        return None if limit_s is None else max(0.0, limit_s - (time.monotonic() - self._begin))

    def out_of_time(self) -> bool:
        """Whether the time limit is reached."""
        return self._left_s() == 0.0

    def of(self, name: str, trace: Trace) -> Policy:
        """The policy of that name for a run of `trace`. Raises RecoveryError, exit code 3."""
        chosen = self.options
        if name in ("oobleck", "ours"):
            expected_ns = chosen.horizon_ns or mean_interval_ns(trace)
            return fleet_policy(self._fleets, name, chosen.in_flight, chosen.pause_ns, expected_ns)
        planner = self._any_plans if name == "varuna" else self._whole_plans
        return planned_policy(planner, name, chosen.in_flight, chosen.pause_ns)

    @property
    def summary(self) -> str | None:
        """How good the plans made so far are proved to be; None without any."""
        made = [f"{name}: {planner.summary}" for name, planner in self._planners.items()]
        return "; ".join(made) if made else None

    @cached_property
    def _fleets(self) -> FleetPlanner:
        nodes = sum(group.nodes for group in self.instance.cluster.groups)
        if self.options.faults >= nodes:
            raise PlannerError(
                f"--faults {self.options.faults}; allowed: 0 to {nodes - 1}, as there are {nodes} "
                "nodes"
            )
        return FleetPlanner(self.instance, self.options.faults, self._left_s)

    @cached_property
    def _any_plans(self) -> Planner:
        return self._planner("varuna", self.instance)

    @cached_property
    def _whole_plans(self) -> Planner:
        return self._planner("bamboo", whole_states(self.instance))

    def _planner(self, name: str, instance: Instance) -> Planner:
        self._planners[name] = Planner(instance, self.options.search, self._report, self._left_s)
        return self._planners[name]
