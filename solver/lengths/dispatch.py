"""Dispatch of one step's sequences to the replicas of a strategy, with its proof or its gap."""

import math
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from formulations.cpsat import dispatch as model
from formulations.lengths.dispatch import dispatch_ns
from formulations.lengths.problem import Rows, Strategy
from solver.backends import cpsat
from solver.lengths.deal import Dispatched, deal
from solver.options import SolveOptions

#: Larger models get nowhere in the seconds that a dispatch is worth.
MOST_LITERALS = 20_000


def dispatch(
    strategy: Strategy, lengths: Sequence[int], rows: Rows, options: SolveOptions
) -> Dispatched:
    """The best dispatch found, to the gap of the options or until their time is up.

    As `deal`, and if that leaves a larger gap and the model is not too large, by CP-SAT.
    """
    until = math.inf if options.time_limit_s is None else monotonic() + options.time_limit_s
    first = deal(strategy, lengths, rows, options.gap, until)
    literals = len(lengths) * sum(
        model.most_rows(replica, lengths, rows, first.time_ns) for replica in strategy.replicas
    )
    if first.gap <= options.gap or literals > MOST_LITERALS:
        return first
    if options.time_limit_s is not None:
        options = replace(options, time_limit_s=max(0.0, until - monotonic()))
    return _by_model(strategy, lengths, rows, first, options)


def _by_model(
    strategy: Strategy, lengths: Sequence[int], rows: Rows, first: Dispatched, options: SolveOptions
) -> Dispatched:
    """What CP-SAT adds to a dispatch and its bound."""
    built = model.build(strategy, lengths, rows, range(first.bound_ns, first.time_ns + 1))
    built.hint(first.dispatch)
    outcome = cpsat.run(built.model, options)
    found = [first.dispatch]
    if outcome.values is not None:
        found.append(built.extract(outcome.values))
    best = min(found, key=lambda one: dispatch_ns(strategy, lengths, one))
    bound = max(first.bound_ns, outcome.bound or 0)
    return Dispatched(best, dispatch_ns(strategy, lengths, best), bound)
