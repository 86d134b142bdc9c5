"""Several methods side by side on one instance: what each found and proved, and what clashes."""

from collections.abc import Iterable
from dataclasses import dataclass

from formulations.instance import Instance
from formulations.plan import Configuration, Plan
from solver.result import Result, Status, Termination, proves, relative_gap

#: Objectives are products of floats: closer ones than this, relatively, are equal.
NOISE = 1e-9


@dataclass(frozen=True)
class Finding:
    """What one method says. objective, bound: as in `solver.result.Result`.

    judged_ns: step time of the plan by the simulator, None without a plan or where it does not
    fit memory. A heuristic's bound is None, as it proves nothing, unless its plan meets
    a bound that needs no search. requested_gap: what OPTIMAL claims.
    """

    method: str
    status: Status
    termination: Termination
    config: Configuration | None
    step_time_ns: int | None
    judged_ns: int | None
    objective: float | None
    bound: float | None
    runtime_s: float
    requested_gap: float = 0.0

    @property
    def gap(self) -> float | None:
        """Relative distance of the plan to the method's own bound."""
        return relative_gap(self.objective, self.bound)


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
            gap, asked = finding.gap, finding.requested_gap
            if finding.status is Status.OPTIMAL and not proves(gap, asked):
                said = f"optimal by its own account, with gap {gap}; asked for: {asked}"
                clashes.append(f"{name}: {said}")
        for proof in self.findings:
            for plan in self.findings:
                if plan.objective is None:
                    continue
                if proof.status is Status.INFEASIBLE:
                    clashes.append(
                        f"{proof.method} proves that there is no plan, {plan.method} has one"
                    )
                elif plan.objective < (proof.bound or 0) * (1 - NOISE):
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
    explained; negative where it costs. None: there is no plan, or none was found.
    """

    change: str
    status: Status
    step_time_s: float | None = None
    saves_at_least: float | None = None
    saves_at_most: float | None = None


def by_saving(answers: Iterable[Answer]) -> list[Answer]:
    """Most saved first, those without a plan last."""
    return sorted(answers, key=lambda a: (a.saves_at_least is None, -(a.saves_at_least or 0.0)))


@dataclass(frozen=True)
class Evaluation:
    """How a plan that is run stands.

    objective: its own. broken: limits that it breaks, one line each. best: the best plan found, and
    the bound of all; None if it was not looked for. changes: the plan with one decision of the best
    plan, most saved first; those that break a limit have no saving.
    """

    objective: float
    broken: tuple[str, ...]
    best: Result | None = None
    changes: tuple[Answer, ...] = ()

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
