"""What a step of mixed lengths is decided upon: sequences, strategies and switches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.instance.lengths import Lengths, MeasuredStrategy
from formulations.instance.rows import lengths_of, measured_rows
from formulations.lengths.fit import Point, upper_fit
from formulations.lengths.problem import Atom, Measured, Mixed, Replica, Strategy, Switching
from formulations.plan import Plan
from formulations.units import ceil_ns
from solver.lengths.layouts import found_strategies
from solver.lengths.useful import useful
from solver.study.store import Study
from solver.switching.all_pairs import switch_times


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
    instance: Instance,
    tell: Callable[[int, int], object] = lambda done, total: None,
    study: Study | None = None,
) -> Candidates:
    """Strategies as measured, else as the instance's search allows; `tell` hears how far it is.

    What the study holds of layouts, and of switches between them, is not worked out again.

    Raises InstanceError without a section `lengths`, LongSequenceError where no strategy takes the
    longest sequences.
    """
    lengths = lengths_of(instance)
    if lengths.strategies:
        measured = [_measured(instance, one) for one in lengths.strategies]
        _check_longest(lengths, [strategy for strategy, _ in measured])
        mixed = _mixed(lengths, [one for one, _ in measured], _measured_switching(lengths))
        return Candidates(mixed, None, tuple(above for _, above in measured))
    found = found_strategies(instance, tell, study)
    _check_longest(lengths, [one.strategy for one in found])
    found = useful(instance, found)
    plans = [one.plan for one in found]
    switching = switch_times(instance.cluster, instance.workload, plans, study)
    mixed = _mixed(lengths, [one.strategy for one in found], switching)
    return Candidates(mixed, tuple(plans), tuple(one.above for one in found))


def _mixed(
    lengths: Lengths, strategies: Sequence[Strategy | Measured], switching: Switching
) -> Mixed:
    atoms = tuple(Atom(one.tokens, one.count) for one in lengths.classes)
    return Mixed(atoms, tuple(strategies), switching, lengths.rows)


def _check_longest(lengths: Lengths, strategies: Sequence[Strategy | Measured]) -> None:
    last = lengths.classes[-1]
    most = max((_longest(lengths, one) for one in strategies), default=0)
    if most < last.tokens:
        remedy = (
            "measure a strategy for them: longest_row, class_times"
            if lengths.strategies
            else "allow more in search: tensor_parallel, context_parallel, pipeline_parallel,"
            " recompute: full, zero"
        )
        known = (
            f"{most} tokens at most; cut them off there, or "
            if most
            else "none has room for a row; "
        )
        raise LongSequenceError(
            f"lengths: sequences of {last.tokens} tokens, {last.count} a step, fit no strategy:"
            f" {known}{remedy}"
        )


def _longest(lengths: Lengths, strategy: Strategy | Measured) -> int:
    """Tokens of the longest sequences that a strategy takes, 0 for none."""
    if isinstance(strategy, Strategy):
        return strategy.longest
    pairs = zip(lengths.classes, strategy.atoms_ns, strict=True)
    return max((one.tokens for one, time_ns in pairs if time_ns is not None), default=0)


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


def _measured_switching(lengths: Lengths) -> Switching:
    names = [one.name for one in lengths.strategies]
    known = {(one.leave, one.enter): one for one in lengths.switching}

    def times(field: str) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(ceil_ns(getattr(known[a, b], field)) if (a, b) in known else 0 for b in names)
            for a in names
        )

    return Switching(times("parameters_s"), times("gradients_s"))
