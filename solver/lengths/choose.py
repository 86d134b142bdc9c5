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

In any order by the circuit model of `hot_switch`, round by round.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import monotonic

import numpy as np

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.lengths.problem import Mixed, Order, Switching
from formulations.lengths.strategy_time import NEVER, Numbers, StrategyTimes, strategy_times
from formulations.lengths.tour import (
    Group,
    Hop,
    Single,
    Tour,
    back_ns,
    best_single,
    between_ns,
    group_figures,
    hops,
    out_ns,
    step_ns,
)
from formulations.models.hot_switch import HotSwitch
from formulations.units import seconds
from solver.backends import cpsat
from solver.document import PlanDocument
from solver.files import sealed
from solver.interrupt import NoTimeError
from solver.lengths_document import LengthsDocument
from solver.options import SolveOptions
from solver.result import Status, Termination, longest_step_ns, proves, relative_gap
from solver.switch_document import KINDS, SwitchDocument
from solver.switching.documented import switch_document


class NoStepError(PlannerError):
    """No strategies and switches that run all sequences."""

    exit_code = 3


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

    @cached_property
    def single(self) -> Single | None:
        """The best strategy that runs everything, without a switch."""
        return best_single(self.mixed)


def choose(mixed: Mixed, order: Order, options: SolveOptions | None = None) -> Chosen:
    """The best step of a problem. Raises NoStepError where there is none.

    Ctrl-C and the time limit of the options end a search for a free order with its best step.
    """
    options, begin = options or SolveOptions(), monotonic()
    fits = np.any([times.fits for times in strategy_times(mixed)], axis=0)
    for atom, fit in zip(mixed.atoms, fits, strict=True):
        if not fit:
            raise NoStepError(f"sequences of {atom.tokens:,} tokens: no strategy takes them")
    tour = ascending(mixed)
    best = None if tour is None else _chosen(mixed, tour)
    if order == "free":
        best = _free(mixed, best, options, begin)
    if best is None:
        raise NoStepError("no switches join strategies that together take all lengths")
    return replace(best, order=order, runtime_s=monotonic() - begin, requested_gap=options.gap)


def check_limits(instance: Instance, chosen: Chosen) -> None:
    """Raises NoStepError for a step that takes longer, or costs more, than the instance allows."""
    longest_ns = longest_step_ns(instance, [group.nodes for group in instance.cluster.groups])
    if longest_ns is None or chosen.step_ns <= longest_ns:
        return
    step, bound = (f"{ns / 1e9:.4g} s" for ns in (chosen.step_ns, chosen.bound_ns))
    raise NoStepError(
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
    """The best of all tours with one group a strategy, and of the best ascending step.

    By rounds: a model in which sequences may be divided, but where a tour was found that does.
    """
    apart, best, bound_ns = _few_sequences(mixed), ascending_step, 0
    while True:
        limit_ns = _longest_ns(mixed) if best is None else max(0, best.step_ns - 1)
        built = HotSwitch(mixed, limit_ns, apart)
        if best is not None:
            built.hint(_merged(best.tour))
        limit_s = options.time_limit_s
        left_s = None if limit_s is None else max(0.0, limit_s - (monotonic() - begin))
        outcome = cpsat.run(built.model.native, replace(options, time_limit_s=left_s))
        values = outcome.values
        solution = None if values is None else _chosen(mixed, built.extract(values))
        if solution is not None and (best is None or solution.step_ns < best.step_ns):
            best = solution
        if best is None:
            if outcome.status is Status.INFEASIBLE:
                return None
            raise NoTimeError("no step was found within the time limit")
        # No tour with one group a strategy is below the engine's bound; none of the ascending ones
        # is below the best of these.
        proved_ns = best.step_ns if outcome.status is Status.INFEASIBLE else outcome.bound or 0
        bound_ns = max(bound_ns, min(proved_ns, best.step_ns))
        more = set() if solution is None else _undivided(mixed, solution.tour) - apart
        if not more or outcome.termination is not Termination.CLOSED:
            if ascending_step is not None:
                bound_ns = min(bound_ns, ascending_step.step_ns)
            return replace(best, bound_ns=bound_ns, termination=outcome.termination)
        apart |= more


def _few_sequences(mixed: Mixed) -> set[tuple[int, int]]:
    """Strategies and lengths of which there are so few, or longer ones, that replicas differ."""
    above, few = 0, set()
    for k, atom in reversed(list(enumerate(mixed.atoms))):
        above += atom.count
        few |= {(q, k) for q, one in enumerate(mixed.strategies) if above <= 2 * one.dp}
    return few


def _undivided(mixed: Mixed, tour: Tour) -> set[tuple[int, int]]:
    """Strategies and lengths that take more than their share of the work in a tour."""
    times = strategy_times(mixed)
    pairs = ((group, times[group.strategy]) for group in tour.groups)
    return {
        (group.strategy, k)
        for group, strategy in pairs
        if isinstance(strategy, StrategyTimes)
        for k in strategy.undivided(group.atoms)
    }


def _merged(tour: Tour) -> Tour:
    """The tour with one group a strategy, at the place of its last one."""
    sets: dict[int, tuple[int, ...]] = {}
    for group in tour.groups:
        sets[group.strategy] = (*sets.pop(group.strategy, ()), *group.atoms)
    return Tour(tour.anchor, tuple(Group(q, atoms) for q, atoms in sets.items()))


def _longest_ns(mixed: Mixed) -> int:
    """No tour takes longer: all strategies with all they can run, as anchors, every switch."""
    tables = (mixed.switching.parameters_ns, mixed.switching.gradients_ns)
    total_ns = 2 * sum(ns or 0 for table in tables for row in table for ns in row)
    for strategy, times in zip(mixed.strategies, strategy_times(mixed), strict=True):
        atoms = np.flatnonzero(times.fits).tolist()
        total_ns += strategy.anchor_ns + (times.of_set(atoms) or 0 if atoms else 0)
    return total_ns


def ascending(mixed: Mixed) -> Tour | None:
    """A step of least time in ascending order; None if there is none."""
    return _Search(mixed).best([strategy.anchor_ns for strategy in mixed.strategies])


class _Search:
    """The dynamic program; NEVER where there is no switch, or a strategy takes not all atoms.

    least: F, [anchor, atoms done, strategy]. begun: atoms done before its last group.
    """

    def __init__(self, mixed: Mixed) -> None:
        self._intervals = np.array([times.of_intervals() for times in strategy_times(mixed)])  # C
        self._between = _matrix(mixed.switching, between_ns)
        np.fill_diagonal(self._between, NEVER)
        self._back = _matrix(mixed.switching, back_ns)  # [last, anchor]
        count, size = self._intervals.shape[:2]
        self._least = np.full((count, size, count), NEVER)
        self._begun = np.zeros((count, size, count), dtype=np.int64)
        before = np.full((count, size, count), NEVER)  # G, and out where nothing is done
        before[:, 0] = _matrix(mixed.switching, out_ns)
        for done in range(1, size):
            ways = before[:, :done] + self._intervals[:, :done, done].T  # (1)
            self._begun[:, done] = ways.argmin(axis=1)
            self._least[:, done] = np.minimum(ways.min(axis=1), NEVER)
            ways = self._least[:, done, :, None] + self._between  # (2)
            before[:, done] = np.minimum(ways.min(axis=1), NEVER)

    def best(self, once_ns: Sequence[int]) -> Tour | None:
        """The best of all anchors, which take so much once, and ends.

        One strategy alone, if that is as good.
        """
        alone = (self._intervals[:, 0, -1] + np.array(once_ns)).tolist()
        least = min(NEVER, *alone)
        tours = [self._tour(q, 0, q) for q, ns in enumerate(alone) if ns == least < NEVER][:1]
        for anchor in range(len(self._intervals)):
            by_itself = self._intervals[anchor, :, -1].copy()
            by_itself[-1] = 0
            # (3)
            ways = self._least[anchor] + self._back[:, anchor] + by_itself[:, None]
            ways += once_ns[anchor]
            # Where the anchor runs the end, what ran before is another strategy.
            ways[:-1, anchor] = NEVER
            done, last = np.unravel_index(ways.argmin(), ways.shape)
            if ways[done, last] < least:
                least = int(ways[done, last])
                tours.append(self._tour(anchor, int(done), int(last)))
        return tours[-1] if tours else None

    def _tour(self, anchor: int, done: int, last: int) -> Tour:
        """The groups, from the end to the start."""
        size = self._intervals.shape[1] - 1
        groups = [Group(anchor, tuple(range(done, size)))] if done < size else []
        while done:
            first = int(self._begun[anchor, done, last])
            groups.append(Group(last, tuple(range(first, done))))
            if first:
                ways = self._least[anchor, first] + self._between[:, last]
                last = int(ways.argmin())
            done = first
        return Tour(anchor, tuple(reversed(groups)))


def _matrix(switching: Switching, entry: Callable[[Switching, int, int], int | None]) -> Numbers:
    """[from, to] times of switches."""
    strategies = range(len(switching.parameters_ns))
    rows = [[entry(switching, a, b) for b in strategies] for a in strategies]
    return np.array([[NEVER if ns is None else ns for ns in row] for row in rows], dtype=np.int64)


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
    mixed, tour = chosen.mixed, chosen.tour
    switches = hops(mixed.switching, tour)
    document = LengthsDocument(
        workload=workload,
        order=chosen.order,
        status=chosen.status,
        termination=chosen.termination,
        requested_gap=chosen.requested_gap,
        runtime_s=chosen.runtime_s,
        anchor=tour.anchor,
        step_time_s=seconds(chosen.step_ns),
        lower_bound_s=seconds(chosen.bound_ns),
        gap=chosen.gap,
        single=chosen.single,
        groups=tuple(group for group in group_figures(mixed, tour) if group is not None),
        switches=tuple(switches),
        problem=mixed,
        above=tuple(above),
        instance=instance,
        plans=tuple(plans),
        switch_plans=tuple(_switch_plans(switches, plans)) if plans else (),
    )
    return sealed(document)


def _switch_plans(
    switches: Sequence[Hop], plans: Sequence[PlanDocument]
) -> Iterator[SwitchDocument]:
    """As the times of switches were worked out: parameters and gradients one after the other."""
    for hop in switches:
        for kind in KINDS[hop.moves]:
            yield switch_document(plans[hop.leaves], plans[hop.enters], kind)
