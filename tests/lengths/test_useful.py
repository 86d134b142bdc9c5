"""Promises of solver.lengths.candidates: strategies that may be worth a switch, and their rows."""

from dataclasses import replace
from functools import cache

import numpy as np

from formulations.instance import Instance
from formulations.lengths.problem import Atom
from formulations.lengths.row_times import PlanRows, lengths_of
from formulations.lengths.strategy_time import NEVER, Numbers, StrategyTimes
from solver.lengths.candidates import CLOSE, useful
from tests.mixed_rows import mixed_strategies


@cache
def strategies() -> tuple[Instance, list[PlanRows], list[PlanRows]]:
    """An instance, its strategies, and the useful ones."""
    instance, found = mixed_strategies()
    return instance, found, useful(instance, found)


def least(instance: Instance, found: list[PlanRows]) -> Numbers:
    """[i, j] time of the fastest rows for the classes i .. j - 1."""
    atoms = [Atom(one.up_to, one.count) for one in lengths_of(instance).classes]
    rows = [replace(one.strategy, visit_ns=0) for one in found]
    times = [StrategyTimes(one, atoms, "packed").of_intervals() for one in rows]
    fastest: Numbers = np.minimum.reduce(times)
    return fastest


def test_no_run_of_classes_gets_slower() -> None:
    """On every run of classes the fastest of the useful ones is as fast as that of all."""
    instance, found, kept = strategies()
    before, after = least(instance, found), least(instance, kept)
    assert ((after == NEVER) == (before == NEVER)).all()
    assert (after <= before * (1 + 1e-6)).all()


def test_each_is_close_somewhere() -> None:
    """None is slower everywhere; fewer are left, with names of their own."""
    instance, found, kept = strategies()
    best = least(instance, kept)
    for one in kept:
        own = least(instance, [one])
        assert ((own < NEVER) & (own <= best * (1 + CLOSE + 0.01))).any()
    assert len({one.strategy.name for one in kept}) == len(kept)
    assert len({id(one.plan) for one in kept}) < len(found)
