"""Dispatch by heuristics alone, with the bound that filling proves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from formulations.errors import PlannerError
from formulations.lengths.dispatch import Dispatch
from formulations.lengths.problem import Rows, Strategy
from solver.lengths.dispatch_bound import least_dispatch_ns
from solver.lengths.dispatcher import Dispatcher


@dataclass(frozen=True)
class Dispatched:
    """A dispatch, its time and the time that no dispatch beats, ns."""

    dispatch: Dispatch
    time_ns: int
    bound_ns: int

    @property
    def gap(self) -> float:
        """By which share of its time the dispatch may be beaten at most."""
        return 1 - self.bound_ns / self.time_ns


def deal(
    strategy: Strategy, lengths: Sequence[int], rows: Rows, gap: float, until: float = math.inf
) -> Dispatched:
    """A dispatch by heuristics, improved to a gap, while that helps or until the clock says so.

    lengths: tokens of every sequence of the step, at least one. Padded rows hold one sequence each,
    of the length that is given: pad before. Raises PlannerError for one that fits no replica.
    """
    longest_row = max(replica.longest_row for replica in strategy.replicas)
    if max(lengths) > longest_row:
        raise PlannerError(
            f"a sequence of {max(lengths)} tokens; strategy {strategy.name} takes {longest_row}"
        )
    dispatcher = Dispatcher(strategy, lengths, rows)
    bound = least_dispatch_ns(strategy, lengths, rows, dispatcher.time_ns)
    dispatcher.improve(math.floor(bound / (1 - gap)), until)
    return Dispatched(dispatcher.dispatch, dispatcher.time_ns, bound)
