"""What a step of mixed lengths is decided upon: sequences, strategies and switches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.instance.lengths import Lengths, MeasuredStrategy
from formulations.instance.rows import lengths_of
from formulations.lengths.fit import Point, upper_fit
from formulations.lengths.moving import estimated_switching
from formulations.lengths.problem import Atom, Mixed, Replica, Strategy, Switching
from formulations.plan import Plan
from formulations.units import ceil_ns
from solver.lengths.layouts import found_strategies


class LongSequenceError(PlannerError):
    """Sequences that no strategy takes."""

    exit_code = 3


@dataclass(frozen=True)
class Candidates:
    """The problem, and of every strategy its plan and how far its times are above what is known.

    plans: None where strategies were measured. above: shares of the time of a row, at most.
    """

    mixed: Mixed
    plans: tuple[Plan, ...] | None
    above: tuple[float, ...]


def candidates(
    instance: Instance, tell: Callable[[int, int], object] = lambda done, total: None
) -> Candidates:
    """Strategies as measured, else as the instance's search allows; `tell` hears how far it is.

    Raises InstanceError without a section `lengths`, LongSequenceError where no strategy takes the
    longest sequences.
    """
    lengths = lengths_of(instance)
    if lengths.strategies:
        strategies, above = zip(*map(_measured, lengths.strategies), strict=True)
        mixed = _mixed(lengths, strategies, _measured_switching(lengths))
        return Candidates(mixed, None, above)
    found = found_strategies(instance, tell)
    plans = [one.plan for one in found]
    switching = estimated_switching(instance, plans)
    mixed = _mixed(lengths, [one.strategy for one in found], switching)
    return Candidates(mixed, tuple(plans), tuple(one.above for one in found))


def _mixed(lengths: Lengths, strategies: Sequence[Strategy], switching: Switching) -> Mixed:
    last = lengths.classes[-1]
    longest = max(strategies, key=lambda one: one.longest, default=None)
    if longest is None or longest.longest < last.tokens:
        most = "none has room for a row" if longest is None else f"{longest.longest} tokens at most"
        raise LongSequenceError(
            f"lengths: sequences of {last.tokens} tokens, {last.count} a step, fit no strategy:"
            f" {most}; cut them off there, or allow more in search: tensor_parallel,"
            " context_parallel, pipeline_parallel, recompute: full, zero"
        )
    atoms = tuple(Atom(one.tokens, one.count) for one in lengths.classes)
    return Mixed(atoms, tuple(strategies), switching, lengths.rows)


def _measured(written: MeasuredStrategy) -> tuple[Strategy, float]:
    points = [Point(n * n, n, ceil_ns(time_s)) for n, time_s in written.row_times_s]
    curve, above = upper_fit(points)
    replica = Replica(written.pipeline_parallel, written.longest_row, curve)
    return Strategy(written.name, (replica,) * written.data_parallel), above


def _measured_switching(lengths: Lengths) -> Switching:
    names = [one.name for one in lengths.strategies]
    known = {(one.leave, one.enter): one for one in lengths.switching}

    def times(field: str) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(ceil_ns(getattr(known[a, b], field)) if (a, b) in known else 0 for b in names)
            for a in names
        )

    return Switching(times("parameters_s"), times("gradients_s"))
