"""What a search returns: status and termination apart, plan, bound, gap, log of closed configs.

And answers side by side: what several methods found and proved, and what clashes.
"""

from collections.abc import Iterable, Sequence
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


# Answers side by side: of several methods, of changes, of what runs, of plans to measure


#: Engines have tolerances of their own: objectives closer than this, relatively, are equal.
METHODS_NOISE = 1e-9


@dataclass(frozen=True)
class Finding(Result):
    """What one method says. judged_ns: step time of the plan by the simulator.

    That is None without a plan or where it does not fit memory. A heuristic's bound is None, as it
    proves nothing, unless its plan meets a bound that needs no search.
    """

    judged_ns: int | None = None

    @property
    def config(self) -> Configuration | None:
        """Of the plan."""
        return None if self.plan is None else self.plan.config


@dataclass(frozen=True)
class Comparison:
    """The findings on one instance, in the order in which the methods ran."""

    instance: Instance
    findings: tuple[Finding, ...]

    @property
    def objective(self) -> float | None:
        """Of the best plan that any method found."""
        return min((f.objective for f in self.findings if f.objective is not None), default=None)

    @property
    def bound(self) -> float | None:
        """The best that any method proved."""
        return max((f.bound for f in self.findings if f.bound is not None), default=None)

    def above(self, finding: Finding) -> float | None:
        """How far a plan is above the best bound, relative to it; negative where they clash."""
        if finding.objective is None or not self.bound:
            return None
        return finding.objective / self.bound - 1

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Every way in which two findings, or one and the simulator, cannot both be right."""
        clashes = list[str]()
        for finding in self.findings:
            name, simulated = finding.method, f"{finding.judged_ns} ns simulated"
            if finding.step_time_ns is not None and finding.judged_ns != finding.step_time_ns:
                said = f"its plan takes {finding.step_time_ns} ns by its own account"
                what = "does not fit memory" if finding.judged_ns is None else simulated
                clashes.append(f"{name}: {said}, {what}")
        for proof in self.findings:
            for plan in self.findings:
                if plan.objective is None:
                    continue
                if proof.status is Status.INFEASIBLE:
                    clashes.append(
                        f"{proof.method} proves that there is no plan, {plan.method} has one"
                    )
                elif plan.objective < (proof.bound or 0) * (1 - METHODS_NOISE):
                    clashes.append(
                        f"{proof.method} proves that no plan is below {proof.bound:.12g}, "
                        f"{plan.method} has one of {plan.objective:.12g}"
                    )
        return tuple(clashes)


@dataclass(frozen=True)
class Answer:
    """What is known of a change of an instance.

    step_time_s: of the best plan found with it. saves_at_least, saves_at_most: share of the
    objective, for each sequence trained, that the best plan with it saves against the plan that is
    explained; negative where it costs. more_usd_per_hour: rent of its nodes above that plan's, None
    where the instance has no price for the change. fullest_gpu: share of its limit that the
    tightest GPU uses. launched_by: who can. None: there is no plan, or none was found.
    """

    change: str
    status: Status
    step_time_s: float | None = None
    saves_at_least: float | None = None
    saves_at_most: float | None = None
    more_usd_per_hour: float | None = None
    fullest_gpu: float | None = None
    launched_by: tuple[Target, ...] | None = None


def by_saving(answers: Iterable[Answer]) -> list[Answer]:
    """Most saved first, those without a plan last."""
    return sorted(answers, key=lambda a: (a.saves_at_least is None, -(a.saves_at_least or 0.0)))


@dataclass(frozen=True)
class Evaluation:
    """How a plan that is run stands.

    objective: its own. broken: limits that it breaks, one line each. best: the best plan found, and
    the bound of all; None if it was not looked for. changes: the plan with one decision of the best
    plan, most saved first; those that break a limit have no saving. settings: lines that the first
    of them changes in the launch file.
    """

    objective: float
    broken: tuple[str, ...]
    best: Result | None = None
    changes: tuple[Answer, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def above_best(self) -> float | None:
        """How far the objective is above that of the best plan found, relative to it."""
        best = None if self.best is None else self.best.objective
        return self.objective / best - 1 if best else None

    @property
    def above_bound(self) -> float | None:
        """How far it is above that of any plan at most."""
        bound = None if self.best is None else self.best.bound
        return max(0.0, self.objective / bound - 1) if bound else None


@dataclass(frozen=True)
class Listed:
    """A plan of a shortlist. behind: predicted objective above that of the first, as a share.

    chance: that it is the fastest of all candidates. gain: share by which it lowers the expected
    objective of the fastest one listed.
    """

    plan: Plan
    step_time_ns: int
    behind: float
    chance: float
    gain: float


@dataclass(frozen=True)
class Shortlist:
    """Plans to measure, the best predicted one first, of so many candidates within reach.

    complete: whether every configuration within reach was looked at in time. margin: predicted
    objective above the best one's, as a share, that is within reach.
    """

    listed: tuple[Listed, ...]
    candidates: int
    complete: bool
    margin: float
