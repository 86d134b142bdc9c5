"""The problem of a step whose strategies and switches the instance has measured times of."""

from formulations.instance import Instance
from formulations.instance.lengths import Lengths, MeasuredStrategy
from formulations.instance.rows import lengths_of, measured_rows
from formulations.lengths.fit import Point, upper_fit
from formulations.lengths.problem import (
    Atom,
    Measured,
    Mixed,
    Replica,
    Strategy,
    Switching,
)
from formulations.units import ceil_ns


def measured_problem(instance: Instance) -> tuple[Mixed, tuple[float, ...]]:
    """The problem, and by which share of a row's time each strategy is above what was measured."""
    lengths = lengths_of(instance)
    measured = [_measured(instance, strategy) for strategy in lengths.strategies]
    strategies = tuple(strategy for strategy, _ in measured)
    mixed = Mixed(atoms_of(lengths), strategies, _switching(lengths), lengths.rows)
    return mixed, tuple(above for _, above in measured)


def atoms_of(lengths: Lengths) -> tuple[Atom, ...]:
    """The classes of the histogram."""
    return tuple(Atom(one.tokens, one.count) for one in lengths.classes)


def _measured(instance: Instance, written: MeasuredStrategy) -> tuple[Strategy | Measured, float]:
    """By its times of rows, or of whole classes, as a step has them."""
    once = ceil_ns(written.per_visit_s), ceil_ns(written.per_step_s)
    if written.class_times_s:
        known = dict(written.class_times_s)
        times = [known.get(one.tokens) for one in lengths_of(instance).classes]
        whole = tuple(None if one is None else ceil_ns(one) for one in times)
        return Measured(written.name, whole, *once), 0.0
    points = [Point(n * n, n, time_ns) for n, time_ns in measured_rows(instance, written)]
    curve, above = upper_fit(points)
    assert written.longest_row is not None
    replica = Replica(written.pipeline_parallel, written.longest_row, curve)
    return Strategy(written.name, (replica,) * written.data_parallel, *once), above


def _switching(lengths: Lengths) -> Switching:
    names = [one.name for one in lengths.strategies]
    known = {(one.leave, one.enter): one for one in lengths.switching}

    def times(field: str) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(ceil_ns(getattr(known[a, b], field)) if (a, b) in known else 0 for b in names)
            for a in names
        )

    return Switching(times("parameters_s"), times("gradients_s"))
