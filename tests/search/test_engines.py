"""Families of models and their engines."""

import pytest

from formulations.models.cpsat import CpSat
from formulations.models.milp import Milp
from formulations.models.model import total_of, weighted
from solver.options import SolveOptions
from solver.result import Status
from solver.search.engines import Family, model_engine


@pytest.mark.parametrize(
    ("family", "model", "whole"), [("cpsat", CpSat, True), ("milp", Milp, False)]
)
def test_each_family_runs_its_own_models(family: Family, model: type, whole: bool) -> None:
    """The least 3 a + 5 b with a + b >= 1 and a < b is 5; with both bounded by 0 there is none."""
    engine = model_engine(family)
    assert engine.counts_whole is whole
    for upper, status, objective in ((1, Status.OPTIMAL, 5), (0, Status.INFEASIBLE, None)):
        built = engine.model()
        assert isinstance(built, model)
        a, b, time = built.literal("a"), built.literal("b"), built.time("time", 100)
        built.some_of(1, [a, b])
        built.at_most(2, total_of(a, b), upper)
        built.at_most(3, a, b)
        built.at_most(4, weighted([3, 5], [a, b]), time)
        built.minimize(time)
        outcome = engine.run(built.native, SolveOptions())
        assert (outcome.status, outcome.objective) == (status, objective)
