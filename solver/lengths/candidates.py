"""What a step of mixed lengths is decided upon: sequences, strategies and switches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.instance.lengths import Lengths
from formulations.instance.rows import lengths_of
from formulations.lengths.measured import atoms_of, measured_problem
from formulations.lengths.problem import Measured, Mixed, Strategy
from formulations.plan import Plan
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
        mixed, above = measured_problem(instance)
        _check_longest(lengths, mixed.strategies)
        return Candidates(mixed, None, above)
    found = found_strategies(instance, tell, study)
    _check_longest(lengths, [one.strategy for one in found])
    found = useful(instance, found)
    plans = [one.plan for one in found]
    switching = switch_times(instance.cluster, instance.workload, plans, study)
    strategies = tuple(one.strategy for one in found)
    mixed = Mixed(atoms_of(lengths), strategies, switching, lengths.rows)
    return Candidates(mixed, tuple(plans), tuple(one.above for one in found))


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
