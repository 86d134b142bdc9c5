"""The best step of mixed lengths, with its bound: in ascending order, or in any."""

from dataclasses import dataclass, replace
from functools import cached_property
from time import monotonic

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.lengths.problem import Mixed, Order, Strategy
from formulations.lengths.strategy_time import StrategyTimes, strategy_times
from formulations.lengths.tour import Group, Tour, best_single, step_ns
from formulations.models.hot_switch import HotSwitch
from solver.backends import cpsat
from solver.interrupt import NoTimeError
from solver.lengths.ascending import ascending
from solver.options import SolveOptions
from solver.result import Status, Termination, longest_step_ns, proves, relative_gap


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
    def single(self) -> tuple[int, int] | None:
        """The best strategy that runs everything, without a switch, and its time."""
        return best_single(self.mixed)


def choose(mixed: Mixed, order: Order, options: SolveOptions | None = None) -> Chosen:
    """The best step of a problem. Raises NoStepError where there is none.

    Ctrl-C and the time limit of the options end a search for a free order with its best step.
    """
    options, begin = options or SolveOptions(), monotonic()
    _check_fits(mixed)
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
    found, bound = (f"{ns / 1e9:.4g} s" for ns in (chosen.step_ns, chosen.bound_ns))
    raise NoStepError(
        f"limits.max_step_time, max_cost_per_step: {longest_ns / 1e9:.4g} s at most on all nodes;"
        f" the step takes {found}, and none takes less than {bound}"
    )


def _chosen(mixed: Mixed, tour: Tour) -> Chosen:
    time_ns = step_ns(mixed, tour)
    assert time_ns is not None, "what a search returns is possible"
    return Chosen(mixed, "ascending", tour, time_ns, time_ns, Termination.CLOSED, 0.0)


def _check_fits(mixed: Mixed) -> None:
    fits = [times.fits for times in strategy_times(mixed)]
    for k, atom in enumerate(mixed.atoms):
        if not any(own[k] for own in fits):
            raise NoStepError(f"sequences of {atom.tokens:,} tokens: no strategy takes them")


def _free(mixed: Mixed, known: Chosen | None, options: SolveOptions, begin: float) -> Chosen | None:
    """The best of all tours with one group a strategy, and of the known ascending step.

    By rounds: a model in which sequences may be divided, but where a tour was found that does.
    """
    apart, best, bound_ns = _few_sequences(mixed), known, 0
    while True:
        most_ns = _most_ns(mixed) if best is None else max(0, best.step_ns - 1)
        built = HotSwitch(mixed, most_ns, apart)
        if best is not None:
            built.hint(_merged(best.tour))
        limit_s = options.time_limit_s
        left_s = None if limit_s is None else max(0.0, limit_s - (monotonic() - begin))
        outcome = cpsat.run(built.model.native, replace(options, time_limit_s=left_s))
        found = None if outcome.values is None else _chosen(mixed, built.extract(outcome.values))
        if found is not None and (best is None or found.step_ns < best.step_ns):
            best = found
        if best is None:
            if outcome.status is Status.INFEASIBLE:
                return None
            raise NoTimeError("no step was found within the time limit")
        # No tour with one group a strategy is below the engine's bound; none of the ascending ones
        # is below the known one.
        proved_ns = best.step_ns if outcome.status is Status.INFEASIBLE else outcome.bound or 0
        bound_ns = max(bound_ns, min(proved_ns, best.step_ns))
        more = set() if found is None else _undivided(mixed, found.tour) - apart
        if not more or outcome.termination is not Termination.CLOSED:
            floor_ns = bound_ns if known is None else min(bound_ns, known.step_ns)
            return replace(best, bound_ns=floor_ns, termination=outcome.termination)
        apart |= more


def _few_sequences(mixed: Mixed) -> set[tuple[int, int]]:
    """Strategies and lengths of which there are so few, or longer ones, that replicas differ."""
    above, few = 0, set()
    for k, atom in reversed(list(enumerate(mixed.atoms))):
        above += atom.count
        few |= {
            (q, k)
            for q, one in enumerate(mixed.strategies)
            if isinstance(one, Strategy) and above <= 2 * len(one.replicas)
        }
    return few


def _undivided(mixed: Mixed, tour: Tour) -> set[tuple[int, int]]:
    """Strategies and lengths that take more than their share of the work in a tour."""
    times = strategy_times(mixed)
    pairs = ((group, times[group.strategy]) for group in tour.groups)
    return {
        (group.strategy, k)
        for group, own in pairs
        if isinstance(own, StrategyTimes)
        for k in own.undivided(group.atoms)
    }


def _merged(tour: Tour) -> Tour:
    """The tour with one group a strategy, at the place of its last one."""
    sets: dict[int, tuple[int, ...]] = {}
    for group in tour.groups:
        sets[group.strategy] = (*sets.pop(group.strategy, ()), *group.atoms)
    return Tour(tour.anchor, tuple(Group(q, atoms) for q, atoms in sets.items()))


def _most_ns(mixed: Mixed) -> int:
    """No tour takes longer: all strategies with all they can run, as anchors, every switch."""
    sets = [[k for k, fit in enumerate(own.fits) if fit] for own in strategy_times(mixed)]
    tables = (mixed.switching.parameters_ns, mixed.switching.gradients_ns)
    switches = sum(ns or 0 for table in tables for row in table for ns in row)
    times = (
        own.of_set(atoms) for own, atoms in zip(strategy_times(mixed), sets, strict=True) if atoms
    )
    return 2 * switches + sum(ns or 0 for ns in (*times, *(q.anchor_ns for q in mixed.strategies)))
