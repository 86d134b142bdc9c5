"""What a search returns: status and termination apart, plan, bound, gap, log of closed configs."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from formulations.costs.renting import rent_usd_per_hour, terms_of
from formulations.instance import Instance
from formulations.instance.record import Record, Seconds
from formulations.instance.targets import Target
from formulations.plan import Configuration, Plan

#: Objectives are products of floats: closer ones than this, relatively, are equal.
NOISE = 1e-12


class Status(StrEnum):
    """What is known about the plan."""

    OPTIMAL = "optimal"  #: proved within the requested gap
    FEASIBLE = "feasible"  #: a plan, with a bound that leaves a larger gap
    INFEASIBLE = "infeasible"  #: proved that no plan exists
    UNKNOWN = "unknown"  #: no plan found, and no proof that there is none


class Termination(StrEnum):
    """Why the search ended."""

    CLOSED = "closed"  #: every configuration closed
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    UNFINISHED = "unfinished"  #: one was given up: numerical trouble of an engine, too many orders
    HEURISTIC = "heuristic"  #: a heuristic ran to its end; no proof was asked for
    GIVEN = "given"  #: the plan was given; nothing was searched


Reason = Literal["infeasible", "bounded", "solved", "open"]
Proof = Literal[
    "memory",
    "blocks",
    "batch",
    "limit",
    "work",
    "filling",
    "packing",
    "pipeline",
    "enumeration",
    "cpsat",
    "milp",
]


class ConfigRecord(Record):
    """How one configuration was closed, or that it is open.

    `bound_ns`: proved lower bound of the step time of every plan of the configuration, no higher
    than the result needs; None if there is no plan. `proof` names the argument: memory, blocks,
    batch, limit (infeasible); work, filling, packing, pipeline (bounds that need no search);
    enumeration, cpsat, milp (exhaustive).
    """

    config: Configuration
    reason: Reason
    proof: Proof
    bound_ns: int | None = None


class Moment(Record):
    """What a search knew after so many seconds; one of the two is news.

    step_time_s: of the best plan. bound: share of the objective of the plan in the end below which
    there is none.
    """

    elapsed_s: Seconds
    step_time_s: Seconds | None = None
    bound: float | None = None


@dataclass(frozen=True)
class SearchLog:
    """Every configuration of the plan space, and how incumbent and bound came together."""

    configs: tuple[ConfigRecord, ...] = ()
    history: tuple[Moment, ...] = ()


@dataclass(frozen=True)
class Infeasibility:
    """Which constraint cannot be met, and the smallest change that would help."""

    constraint: str
    remedy: str


class OtherTarget(Record):
    """A launch target whose wider plan space may hold a better plan."""

    target: Target
    #: By which share of its objective the plan may be beaten there at most, as far as there was
    #: time to prove it; None: no time to look at all configurations.
    gain: float | None
    found_gain: float = 0.0  #: the same of a plan that was seen there; 0: none is better yet
    search: str  #: what to write into the instance, as one line of YAML


class SecondBest(Record):
    """The best plan seen of another configuration than the best plan's.

    behind: share by which its objective is above the best plan's; config and behind: None where
    none was seen. at_least: no plan of another configuration is behind by a smaller share; None
    where none has a plan, or there was no time to list them.
    """

    config: Configuration | None
    step_time_s: Seconds | None
    behind: float | None
    at_least: float | None


@dataclass(frozen=True)
class Result:
    """Outcome of a search over one instance.

    The objective is the step time in ns, times the price of the nodes used in USD per hour if
    money is minimised, of an hour of steps that are kept if money per useful sequence is. `gap` =
    (objective - bound) / objective; None without a plan.
    requested_gap: OPTIMAL means that `gap` is no larger. Raises ValueError if the parts contradict
    each other.
    """

    instance: Instance
    status: Status
    termination: Termination
    plan: Plan | None
    step_time_ns: int | None
    objective: float | None
    bound: float | None
    runtime_s: float
    log: SearchLog
    method: str
    infeasibility: Infeasibility | None = None
    requested_gap: float = 0.0
    other_targets: tuple[OtherTarget, ...] = ()
    second_best: SecondBest | None = None  #: None without a plan, or another configuration

    def __post_init__(self) -> None:
        parts = (self.plan, self.step_time_ns, self.objective)
        planned = self.status in (Status.OPTIMAL, Status.FEASIBLE)
        if any((part is not None) != planned for part in parts):
            raise ValueError(f"{self.status}, with plan, step time and objective {parts}")
        if self.status is Status.OPTIMAL and not proves(self.gap, self.requested_gap):
            raise ValueError(f"optimal, with gap {self.gap} where {self.requested_gap} was asked")

    @property
    def gap(self) -> float | None:
        """Largest relative distance to the best plan."""
        return relative_gap(self.objective, self.bound)


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    """Distance of a plan from a bound of all plans, relative to the plan; None without both."""
    if objective is None or bound is None:
        return None
    return max(0.0, (objective - bound) / objective) if objective else 0.0


def proves(gap: float | None, requested: float) -> bool:
    """Whether a gap is as small as requested, up to the noise of products of floats."""
    return gap is not None and gap <= requested + NOISE


def objective_weight(instance: Instance, config: Configuration) -> float:
    """Objective per nanosecond of step time: 1, or the rent in USD per hour, of useful time."""
    if instance.objective.minimize == "step_time":
        return 1.0
    if instance.objective.minimize == "cost_per_useful_sequence":
        return terms_of(instance, config.nodes_used).useful_usd_per_hour
    return rent_usd_per_hour(instance, config.nodes_used)


def longest_step_ns(instance: Instance, nodes_used: Sequence[int]) -> int | None:
    """Longest step that limits on time and on money per step allow on these nodes; None: any."""
    limits, price = instance.limits, rent_usd_per_hour(instance, nodes_used)
    seconds = []
    if limits.max_step_time_s is not None:
        seconds.append(limits.max_step_time_s)
    if limits.max_cost_usd_per_step is not None and price > 0:
        seconds.append(limits.max_cost_usd_per_step / price * 3600)
    return int(min(seconds) * 1e9 * (1 + 1e-12)) if seconds else None
