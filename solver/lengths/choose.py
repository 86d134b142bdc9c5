"""The best step of mixed lengths, with its bound: in ascending order, or in any.

In ascending order by dynamic programming, for every anchor at once. With C[q, i, j] the time of
strategy q for atoms i .. j - 1 and a visit, and F[r, j, q] the least time in which atoms 0 .. j - 1
are done from anchor r on, q last:

    F[r, j, q] = min(out[r, q] + C[q, 0, j], min over i < j of G[r, i, q] + C[q, i, j]),       (1)
    G[r, i, q] = min over q' != q of F[r, i, q'] + between[q', q].                             (2)

A step ends by `back`, with all atoms done by others than the anchor, or with the anchor running the
longest ones itself, which then moves gradients alone: min over i, q of F[r, i, q] + back[q, r] +
C[r, i, K] (3); or the anchor runs them all, without a switch; each time with what anchor r takes
once. O(R K (K Q + Q^2)) for R anchors.

In any order by the circuit model of `hot_switch`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from formulations.errors import NoPlanError
from formulations.instance import Instance
from formulations.lengths.problem import Mixed, Order
from formulations.lengths.strategy_time import NEVER, strategy_times
from formulations.lengths.tour import Group, Tour, step_ns, switch_tables
from formulations.models.hot_switch import HotSwitch
from formulations.units import seconds
from solver.backends import cpsat
from solver.document import PlanDocument
from solver.files import sealed
from solver.interrupt import NoTimeError
from solver.lengths_document import KINDS, LengthsDocument, step_figures
from solver.options import SolveOptions
from solver.result import Status, Termination, longest_step_ns, proves, relative_gap
from solver.switching.quickest import switch_document


@dataclass(frozen=True)
class Chosen:
    """A step, and the bound of all steps in its order; times in ns, gap relative."""

    mixed: Mixed
    order: Order
    tour: Tour
    step_ns: int
    bound_ns: int
    termination: Termination
    runtime_s: float
    requested_gap: float = 0.0

    @property
    def gap(self) -> float:
        """Largest relative distance to the best step."""
        gap = relative_gap(self.step_ns, self.bound_ns)
        assert gap is not None
        return gap

    @property
    def status(self) -> Status:
        """Whether the step is proved to be within the gap that was asked for."""
        return Status.OPTIMAL if proves(self.gap, self.requested_gap) else Status.FEASIBLE


def choose(mixed: Mixed, order: Order, options: SolveOptions | None = None) -> Chosen:
    """The best step of a problem. Raises NoPlanError where there is none.

    Ctrl-C and the time limit of the options end a search for a free order with its best step.
    """
    options, begin = options or SolveOptions(), monotonic()
    tour = ascending(mixed)
    best = None if tour is None else _chosen(mixed, tour)
    if order == "free":
        best = _free(mixed, best, options, begin)
    if best is None:
        raise NoPlanError("no strategies take all lengths together, or no switches join them")
    return replace(best, order=order, runtime_s=monotonic() - begin, requested_gap=options.gap)


def check_limits(instance: Instance, chosen: Chosen) -> None:
    """Raises NoPlanError for a step that takes longer, or costs more, than the instance allows."""
    longest_ns = longest_step_ns(instance, [group.nodes for group in instance.cluster.groups])
    if longest_ns is None or chosen.step_ns <= longest_ns:
        return
    step, bound = (f"{ns / 1e9:.4g} s" for ns in (chosen.step_ns, chosen.bound_ns))
    raise NoPlanError(
        f"limits.max_step_time, max_cost_per_step: {longest_ns / 1e9:.4g} s at most on all nodes;"
        f" the step takes {step}, and none takes less than {bound}"
    )


def _chosen(mixed: Mixed, tour: Tour) -> Chosen:
    time_ns = step_ns(mixed, tour)
    assert time_ns is not None, "what a search returns is possible"
    return Chosen(mixed, "ascending", tour, time_ns, time_ns, Termination.CLOSED, 0.0)


def _free(
    mixed: Mixed, ascending_step: Chosen | None, options: SolveOptions, begin: float
) -> Chosen | None:
    """The best of all tours with one group a strategy, and of the best ascending step."""
    best = ascending_step
    built = HotSwitch(mixed, None if best is None else max(0, best.step_ns - 1))
    limit_s = options.time_limit_s
    left_s = None if limit_s is None else max(0.0, limit_s - (monotonic() - begin))
    outcome = cpsat.run(built.model.native, replace(options, time_limit_s=left_s))
    if outcome.values is not None:
        solution = _chosen(mixed, built.extract(outcome.values))
        best = solution if best is None or solution.step_ns < best.step_ns else best
    if best is None:
        if outcome.status is Status.INFEASIBLE:
            return None
        raise NoTimeError("no step was found within the time limit")
    # No tour with one group a strategy is below the engine's bound; none of the ascending ones is
    # below the best of these.
    proved_ns = best.step_ns if outcome.status is Status.INFEASIBLE else outcome.bound or 0
    bound_ns = min(proved_ns, best.step_ns)
    return replace(best, bound_ns=bound_ns, termination=outcome.termination)


def ascending(mixed: Mixed) -> Tour | None:
    """A step of least time in ascending order; None if there is none.

    One strategy alone, if that is as good. `NEVER` where there is no switch, or a strategy takes
    not all atoms.
    """
    intervals = np.array([times.of_intervals() for times in strategy_times(mixed)])  # C
    once = np.array([strategy.anchor_ns for strategy in mixed.strategies], dtype=np.int64)
    out, between, back = switch_tables(mixed.switching).values()
    count, size = intervals.shape[:2]
    least = np.full((count, size, count), NEVER)  # F, [anchor, atoms done, last strategy]
    begun = np.zeros((count, size, count), dtype=np.int64)  # atoms done before the last group
    before = np.full((count, size, count), NEVER)  # G, and out where nothing is done
    before[:, 0] = out
    for done in range(1, size):
        ways = before[:, :done] + intervals[:, :done, done].T  # (1)
        begun[:, done] = ways.argmin(axis=1)
        least[:, done] = np.minimum(ways.min(axis=1), NEVER)
        before[:, done] = np.minimum((least[:, done, :, None] + between).min(axis=1), NEVER)  # (2)
    # (3), [anchor, atoms done before the anchor runs the end itself, last strategy before]
    by_itself = intervals[:, :, -1].copy()
    by_itself[:, -1] = 0
    ends = least + back.T[:, None] + by_itself[:, :, None] + once[:, None, None]
    anchors = np.arange(count)
    ends[anchors, :-1, anchors] = NEVER  # what ran before is another strategy
    alone = intervals[:, 0, -1] + once
    if alone.min() <= ends.min():
        single = int(alone.argmin())
        tour = Tour(single, (Group(single, tuple(range(size - 1))),))
        return tour if alone[single] < NEVER else None
    if ends.min() >= NEVER:
        return None
    # The groups, from the end to the start
    anchor, done, last = (int(at) for at in np.unravel_index(ends.argmin(), ends.shape))
    groups = [Group(anchor, tuple(range(done, size - 1)))] if done < size - 1 else []
    while done:
        first = int(begun[anchor, done, last])
        groups.append(Group(last, tuple(range(first, done))))
        if first:
            last = int((least[anchor, first] + between[:, last]).argmin())
        done = first
    return Tour(anchor, tuple(reversed(groups)))


def build_lengths(
    chosen: Chosen,
    workload: str,
    instance: Instance | None = None,
    plans: Sequence[PlanDocument] = (),
    above: Sequence[float] = (),
) -> LengthsDocument:
    """The sealed file; instance: None where the problem was not made of one.

    plans: of all strategies, unless they were measured. above: see `LengthsDocument`.
    """
    figures = step_figures(chosen.mixed, chosen.tour)
    assert figures is not None, "what a search returns is possible"
    # As the times of switches were worked out: parameters and gradients one after the other
    switches = [
        switch_document(plans[hop.leaves], plans[hop.enters], kind)
        for hop in figures["switches"]
        for kind in KINDS[hop.moves]
        if plans
    ]
    document = LengthsDocument(
        **figures,
        workload=workload,
        order=chosen.order,
        status=chosen.status,
        termination=chosen.termination,
        requested_gap=chosen.requested_gap,
        runtime_s=chosen.runtime_s,
        anchor=chosen.tour.anchor,
        lower_bound_s=seconds(chosen.bound_ns),
        gap=chosen.gap,
        problem=chosen.mixed,
        above=tuple(above),
        instance=instance,
        plans=tuple(plans),
        switch_plans=tuple(switches),
    )
    return sealed(document)
