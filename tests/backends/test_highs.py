"""The HiGHS backend speaks the project's words, and does not believe its floats."""

import _thread
import random
import signal
import threading
from types import SimpleNamespace

import highspy
import numpy as np
import pulp
import pytest

from solver.backends import highs
from solver.backends.highs import _outcome, _scaled
from solver.options import SolveOptions
from solver.result import Status, Termination
from tests.conftest import present


def least(bound: int) -> pulp.LpProblem:
    """Minimise a time of 10 ns or less that is `bound` ns if a literal holds, as it must."""
    model = pulp.LpProblem("least")
    time, literal = model.add_variable("time", 0, 10), model.add_variable("yes", 0, 1, "Integer")
    model.setObjective(time)
    model.addConstraint(time - bound * literal >= 0)
    model.addConstraint(literal >= 1)
    return model


def hard() -> pulp.LpProblem:
    """A time of at least 1000 ns, and of as much more as a market split misses its target."""
    rng = random.Random(1)
    model = pulp.LpProblem("hard")
    time = model.add_variable("time", 1000)
    model.setObjective(time)
    literals = [model.add_variable(f"x{n:02}", 0, 1, "Integer") for n in range(40)]
    for _ in range(4):
        weights = [rng.randrange(10**6) for _ in literals]
        missed = pulp.lpDot(weights, literals) - sum(weights) // 2
        model.addConstraint(time - missed >= 1000)
        model.addConstraint(time + missed >= 1000)
    return model


@pytest.mark.parametrize(("spare", "status"), [(0, Status.OPTIMAL), (-1, Status.INFEASIBLE)])
def test_a_nanosecond_of_a_minute_counts(spare: int, status: Status) -> None:
    """60 s fit a limit of 60 s with half a nanosecond left, not one of a nanosecond less."""
    model = pulp.LpProblem("minute")
    time, literal = model.add_variable("time", 0), model.add_variable("yes", 0, 1, "Integer")
    model.setObjective(time)
    model.addConstraint(time - 60_000_000_000 * literal >= 0)
    model.addConstraint(literal >= 1)
    time.upBound = 60_000_000_000 + spare + 0.5
    assert highs.run(model, SolveOptions()).status is status


@pytest.mark.parametrize(("more_ns", "within"), [(0, True), (1, False)])
def test_times_that_doubles_do_not_hold_are_trouble(more_ns: int, within: bool) -> None:
    """10^-9 x 2^53 units of 2^26 ns, by two terms: 84 hours in a row; and a nanosecond more."""
    most_ns = 302_231_454_903_657 + more_ns
    model = least(most_ns)
    model.variables()[0].upBound = most_ns
    outcome = highs.run(model, SolveOptions())
    assert (outcome.status is Status.OPTIMAL, outcome.trouble is None) == (within, within)
    assert outcome.objective == (most_ns if within else None)
    assert (outcome.bound is None) is not within


def test_time_limit_keeps_the_bound() -> None:
    """Stopped on its way, the engine has a solution and the 1000 ns that no solution is below.

    Stopped before it began it knows nothing, which is not infeasible.
    """
    outcome = highs.run(hard(), SolveOptions(time_limit_s=0.0))
    assert (outcome.status, outcome.termination) == (Status.UNKNOWN, Termination.TIME_LIMIT)
    assert outcome.values is None
    outcome = highs.run(hard(), SolveOptions(time_limit_s=0.5))
    assert (outcome.status, outcome.termination) == (Status.FEASIBLE, Termination.TIME_LIMIT)
    assert 1000 <= present(outcome.bound) <= present(outcome.objective)


def test_hint_is_where_it_starts() -> None:
    """Initial values of the literals are a solution at hand, however short the time."""
    model = hard()
    for variable in model.variables():
        if variable.cat == "Integer":
            variable.setInitialValue(0)
    found = highs.run(model, SolveOptions(time_limit_s=0.05)).objective
    worst = max(abs(row.constant + 1000) for row in model.constraints())
    assert present(found) <= 1000 + worst


def test_model_without_literals() -> None:
    model = pulp.LpProblem("linear")
    time = model.add_variable("time", 7)
    model.setObjective(time)
    model.addConstraint(time >= 5)
    outcome = highs.run(model, SolveOptions())
    assert (outcome.status, outcome.objective, outcome.bound) == (Status.OPTIMAL, 7, 7)


def test_equal_names_are_refused() -> None:
    model = least(3)
    model.addConstraint(model.add_variable("time", 0) >= 1)
    with pytest.raises(ValueError, match="same name"):
        highs.run(model, SolveOptions())


def test_crossed_bounds_are_infeasible() -> None:
    """A budget below a proved bound leaves no solution, and is no invalid model."""
    model = least(3)
    model.variables()[0].upBound, model.variables()[0].lowBound = 4.5, 5.5
    assert highs.run(model, SolveOptions()).status is Status.INFEASIBLE


def answered(status: str, bound: float = 1.0) -> SimpleNamespace:
    """An engine that says it ended so, with a solution and this bound in its units."""
    info = SimpleNamespace(
        primal_solution_status=2, mip_dual_bound=bound, objective_function_value=1.0
    )
    return SimpleNamespace(
        getModelStatus=lambda: getattr(highspy.HighsModelStatus, status),
        getInfo=lambda: info,
        getRunTime=lambda: 0.0,
        getSolution=lambda: SimpleNamespace(col_value=[1.0, 1.0]),
        modelStatusToString=str,
    )


@pytest.mark.parametrize("code", ["kUnknown", "kSolveError", "kUnbounded"])
def test_odd_status_proves_nothing(code: str) -> None:
    """What is neither solution, proof nor limit is UNKNOWN, whatever comes with it.

    A limit leaves a feasible solution, though PuLP's own class calls it optimal.
    """
    _, columns = _scaled(least(3))
    outcome = _outcome(answered(code), columns)
    assert (outcome.status, outcome.bound, outcome.values) == (Status.UNKNOWN, None, None)
    assert outcome.termination is Termination.UNFINISHED
    assert (outcome.trouble or "").startswith("HiGHS: ")
    for limit in ("kTimeLimit", "kInterrupt", "kMemoryLimit"):
        stopped = _outcome(answered(limit, -np.inf), columns)
        ended = stopped.status, stopped.termination, stopped.bound
        assert ended == (Status.FEASIBLE, Termination.TIME_LIMIT, None)
    for wrong in ("kModelError", "kLoadError"):
        with pytest.raises(ValueError, match="HiGHS refuses the model"):
            _outcome(answered(wrong), columns)


def test_bound_is_rounded_up_less_the_tolerances() -> None:
    """A float a little above a whole number is that number's bound, a little below the same."""
    _, columns = _scaled(least(3))
    for noise in (-1e-10, 0.0, 1e-10):
        bound = 1.0 + noise
        assert _outcome(answered("kOptimal", bound), columns).bound == 1 << 20
    assert _outcome(answered("kOptimal", 1.0 + 1.5 / 2**20), columns).bound == (1 << 20) + 2


def test_interrupt_ends_the_run() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    try:
        threading.Timer(0.3, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            highs.run(hard(), SolveOptions(time_limit_s=20))
    finally:
        signal.signal(signal.SIGINT, before)
