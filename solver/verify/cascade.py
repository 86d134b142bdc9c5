"""The verifier's own proofs of what a log claims, cheapest argument first, whatever the log names.

A claim says that no plan of a configuration has a step time below some bound. Tried in turn:

memory    no split fits, if the claim is that nothing does
work      work, for all claims at once: `closed_forms`; then what stages hold: `whole_blocks`
paths     the paths of the schedule strike everything out: of the ways of a light lane, `lanes`, or
          of all node orders, `refutation`
trial     what is left is halved and struck out again, and what then is left is simulated: lane by
          lane, `lane_exhaust`, unless the target runs some node orders alone; over all orders,
          `exhaust`, where that has no opinion, and of a single lane, or with several chunks per
          device, first
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from math import prod
from typing import Literal, TypeVar

import numpy as np

from formulations.costs.intervals import Array, Mask
from formulations.plan import Configuration, Plan
from solver.interrupt import Deadline, TimeUp
from solver.verify.bounds import ANY_TIME_NS, Prover
from solver.verify.closed_forms import ClosedForms, refuted
from solver.verify.exhaust import Outcome, exhaust
from solver.verify.findings import Effort
from solver.verify.replica_groups import Lanes, exhaust_lanes
from solver.verify.stage_degrees import StageWork, exhaust_stages

#: Seconds that every claim gets before any gets more.
FIRST_S = 1.0

#: Node orders of a single lane are tried at once if they are paths through so few states a stage.
FEW_STATES = 1000

Task = TypeVar("Task")
Answer = TypeVar("Answer")
#: What shows a claim.
Argument = Literal["memory", "work", "paths", "trial"]


@dataclass(frozen=True)
class Claim:
    """No plan of the config has a step below this; `nothing_fits`: as none fits the memory."""

    index: int
    config: Configuration
    below_ns: int
    nothing_fits: bool = False


@dataclass(frozen=True)
class Verdict:
    """What was found out about a claim: an argument, or a plan that refutes it."""

    claim: Claim
    argument: Argument | None = None
    plan: Plan | None = None
    step_time_ns: int | None = None


def _by_work(forms: ClosedForms, below_ns: Array) -> Mask:
    return np.asarray(forms.work_ns() >= below_ns)


def quick_verdicts(prover: Prover, claims: Sequence[Claim]) -> list[Verdict]:
    """Claims that memory, work and whole blocks show."""
    by_prover: dict[Prover, list[Claim]] = {}
    for claim in claims:
        by_prover.setdefault(prover.on(claim.config.nodes_used), []).append(claim)
    shown = list[Verdict]()
    for side, claimed in by_prover.items():
        by_stage, grouped = StageWork(side), list[Claim]()
        for claim in claimed:
            config, timed = claim.config, claim.below_ns < ANY_TIME_NS
            if config.per_stage:
                if timed and claim.below_ns <= by_stage.bound_ns(config):
                    shown.append(Verdict(claim, "work"))
            elif claim.nothing_fits and side.lacks_memory(config):
                shown.append(Verdict(claim, "memory"))
            elif timed:
                grouped.append(claim)
        for shows in (_by_work, refuted):
            if grouped:  # what the argument before leaves
                forms = ClosedForms(side, [claim.config for claim in grouped])
                holds = shows(forms, np.array([claim.below_ns for claim in grouped]))
                shown += [Verdict(claim, "work") for claim in compress(grouped, holds)]
                grouped = list(compress(grouped, ~holds))
    return shown


def in_turns(
    tasks: Sequence[Task],
    settle: Callable[[Task, Deadline], Answer | None],
    effort: Effort,
    num_settled: int = 0,
) -> Iterator[Answer]:
    """Answers in no fixed order; None, or TimeUp, is none.

    Every task gets a short time first, so that a hard one does not keep the easy ones from their
    turn. num_settled: of those that `effort` is told of, not among these tasks.
    """
    clock, total = Deadline(effort.time_limit_s), num_settled + len(tasks)
    for limit_s in (FIRST_S, None):
        hard = list[Task]()
        for task in tasks:
            effort.show(total - len(tasks), total)
            turn = clock.part(limit_s)
            try:
                turn.check()
                answer = settle(task, turn)
            except TimeUp:
                answer = None
            if answer is None:
                hard.append(task)
            else:
                yield answer
        tasks = hard


def verdicts(prover: Prover, claims: Sequence[Claim], effort: Effort) -> Iterator[Verdict]:
    """What is found out about claims, in no fixed order; those without a verdict are open."""
    quick = quick_verdicts(prover, claims)
    yield from quick
    shown = {verdict.claim.index for verdict in quick}
    open_claims = [claim for claim in claims if claim.index not in shown]

    def settle(claim: Claim, clock: Deadline) -> Verdict | None:
        return searched(prover.on(claim.config.nodes_used), claim, clock)

    yield from in_turns(open_claims, settle, effort, len(claims) - len(open_claims))


def _exhausted(prover: Prover, claim: Claim, clock: Deadline) -> Outcome | None:
    """Lane by lane, which knows no node orders, or for a single lane by these; None: no opinion."""
    config, below_ns = claim.config, claim.below_ns
    if config.per_stage:
        return exhaust_stages(prover, config, below_ns, clock)
    if config.vpp > 1 or sum(map(bool, config.nodes_used)) == 1:
        return exhaust(prover, config, below_ns, clock)
    lanes = Lanes(prover, config, below_ns, clock)
    single = lanes.dealing.number == 1
    if single and prod(n + 1 for n in config.nodes_used) <= FEW_STATES:
        outcome = exhaust(prover, config, below_ns, clock)
        if outcome is not None:
            return outcome
    remaining = lanes.everything()
    if remaining is None:
        return Outcome(tried=False)
    by_orders = partial(exhaust, prover, config, below_ns, clock, remaining.allowed)
    if single:
        return by_orders() or exhaust_lanes(lanes, remaining)
    return exhaust_lanes(lanes, remaining) or by_orders()


def searched(prover: Prover, claim: Claim, clock: Deadline) -> Verdict | None:
    """What the paths of the schedule, and trying plans, say of one claim; None: no opinion.

    Raises TimeUp.
    """
    outcome = _exhausted(prover, claim, clock)
    if outcome is None:
        return None
    if outcome.plan is not None:
        return Verdict(claim, plan=outcome.plan, step_time_ns=outcome.step_time_ns)
    return Verdict(claim, "trial" if outcome.tried else "paths")
