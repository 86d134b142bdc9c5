"""Runs HiGHS on a PuLP model; the only place that knows its status codes and tolerances.

HiGHS counts in doubles and lets every row, and every 0 or 1, be off by a tolerance. Models hold
nanoseconds: with coefficients near 1e9, a literal off by the usual 1e-6 is worth 1000 ns. So
1. continuous columns, and the rows that they stand in, are counted in units of 2^20 ns (about a
   millisecond): divisions by a power of two are exact, and numbers stay between 1e-6 and 1e6;
2. the tolerances are the smallest at which HiGHS is at ease, 1e-9: 0.001 ns on a row, 1 ns on a
   literal worth a second. A solution is never taken at its word, but checked in integers;
3. tolerances widen what is feasible, and models leave half a nanosecond around the step times
   of plans, some 500 tolerances: what HiGHS calls infeasible has no plan;
4. a bound is lowered by what the tolerances may have added to it (`_error`) before it counts;
5. (3) needs doubles that hold every row to the tolerance: else a plan breaks a row by rounding
   alone, and HiGHS has called models infeasible that have plans. Where times are too long for that
   (`_rounding`) units are longer, up to `LONGEST_UNIT_NS`; longer times are out of the safe range,
   and a model of literals is not run;
6. presolve is off, and so are the restarts that would repeat it: that of 1.14.0 calls solutions
   optimal that are not (ERGO-Code/HiGHS#2957, #3073; fixed in 1.15, which cannot share a process
   with OR-Tools). Without presolve it has called a model infeasible that has a solution, at any
   tolerance: what it closes is asked again in integers (`solver.search.by_model`).
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pulp
from numpy.typing import NDArray

from solver.backends.outcome import Outcome
from solver.interrupt import held_back
from solver.options import SolveOptions
from solver.result import Status, Termination

UNIT_NS = float(1 << 20)
#: Half a nanosecond is then still seven tolerances.
LONGEST_UNIT_NS = float(1 << 26)
NS_PER_MS = 1e6
TOLERANCE = 1e-9
#: HiGHS solves the relaxations of a MILP with a tenth of the tolerance on reduced costs.
DUAL_TOLERANCE = TOLERANCE / 10
#: A result of floating-point arithmetic is off by no more than this part of it.
UNIT_ROUNDOFF = 2.0**-53

#: What a written model says first. The versions are those that a test of it was run with.
NOTE = (
    "hetplan: the joint model of one configuration, times in ms. HiGHS 1.14.0 and 1.15.1 solve",
    "it rightly with presolve=off, mip_allow_restart=false, mip_rel_gap=0,",
    "mip_feasibility_tolerance=1e-9, primal_feasibility_tolerance=1e-9,",
    "dual_feasibility_tolerance=1e-10. With presolve 1.14.0 loses optima of such models",
    "(ERGO-Code/HiGHS#2957, #3073); other engines need tolerances as small.",
)

_STOPPED = (
    highspy.HighsModelStatus.kTimeLimit,
    highspy.HighsModelStatus.kInterrupt,
    highspy.HighsModelStatus.kIterationLimit,
    highspy.HighsModelStatus.kSolutionLimit,
    highspy.HighsModelStatus.kMemoryLimit,
)
_REFUSED = (
    highspy.HighsModelStatus.kLoadError,
    highspy.HighsModelStatus.kModelError,
    highspy.HighsModelStatus.kModelEmpty,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Columns:
    """Columns of a model in the order of its `variables()`; times in units."""

    unit_ns: float
    whole: NDArray[np.bool_]
    scale: Floats  #: nanoseconds per unit of a time, 1 for a literal
    lower: Floats
    upper: Floats


def _scaled(model: pulp.LpProblem, unit_ns: float = UNIT_NS) -> tuple[highspy.HighsLp, _Columns]:
    """The model as PuLP gives it to HiGHS, but with times, and rows with times, in units."""
    variables = model.variables()
    if len({variable.name for variable in variables}) < len(variables):
        raise ValueError("two variables of the model have the same name")
    # HiGHS would leave out rows with larger numbers than it expects
    builder = pulp.HiGHS(msg=False, large_matrix_value=math.inf)
    builder.createAndConfigureSolver(model)
    builder.buildSolverModel(model)
    lp, model.solverModel = model.solverModel.getLp(), None
    whole = np.array([variable.cat == pulp.LpInteger for variable in variables])
    scale, matrix = np.where(whole, 1.0, unit_ns), lp.a_matrix_
    row_of = np.repeat(np.arange(lp.num_row_), np.diff(matrix.start_))
    column_of = np.array(matrix.index_, dtype=np.intp)
    has_times = np.bincount(row_of, ~whole[column_of], lp.num_row_) > 0
    row_scale = np.where(has_times, unit_ns, 1.0)
    matrix.value_ = np.array(matrix.value_) * scale[column_of] / row_scale[row_of]
    lp.col_cost_ = np.array(lp.col_cost_) * scale / unit_ns
    lower, upper = np.array(lp.col_lower_) / scale, np.array(lp.col_upper_) / scale
    lp.col_lower_, lp.col_upper_ = lower, upper
    lp.row_lower_, lp.row_upper_ = lp.row_lower_ / row_scale, lp.row_upper_ / row_scale
    return lp, _Columns(unit_ns, whole, scale, lower, upper)


def _rounding(lp: highspy.HighsLp, columns: _Columns) -> float:
    """Most by which rounding may move a row with times, in units.

    Proof. The terms of literals are whole ns, which doubles hold. A row of n terms is added up
    with n roundings, each of at most the unit roundoff of what the times add up to (Higham 2002,
    Accuracy and Stability of Numerical Algorithms, eq. 3.5). A time without upper bound is no
    larger than the rest of its rows makes it.
    """
    times = np.isfinite(columns.upper) & ~columns.whole
    terms = np.abs(lp.a_matrix_.value_) * np.where(times, columns.upper, 0.0)[lp.a_matrix_.index_]
    sizes = np.diff(lp.a_matrix_.start_)
    sums = np.bincount(np.repeat(np.arange(len(sizes)), sizes), terms, len(sizes))
    return UNIT_ROUNDOFF * float((sizes * sums).max(initial=0.0))


def _configure(engine: Any, options: SolveOptions) -> None:
    settings: dict[str, object] = {
        "output_flag": False,
        "random_seed": options.seed,
        "threads": options.workers,
        "parallel": "on" if options.workers > 1 else "off",
        "presolve": "off",
        "mip_allow_restart": False,
        "mip_rel_gap": options.gap,
        "mip_abs_gap": 0.0,
        "mip_feasibility_tolerance": TOLERANCE,
        "primal_feasibility_tolerance": TOLERANCE,
        "dual_feasibility_tolerance": DUAL_TOLERANCE,
    }
    if options.time_limit_s is not None:
        settings["time_limit"] = max(options.time_limit_s, 0.0)
    for name, value in settings.items():
        if engine.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            raise ValueError(f"HiGHS refuses option {name} = {value}")


def _solve(engine: Any) -> None:
    """Runs in a thread, so that Ctrl-C and time limits reach us; they end the run first.

    A thread that still runs when the interpreter ends aborts the process.
    """
    engine.HandleUserInterrupt = True
    engine.startSolve()
    ended = False
    try:
        while not ended:
            ended = engine.wait(0.1)[0]
    finally:
        if not ended:
            with held_back():  # the end of the time comes again and again
                engine.cancelSolve()
                while not engine.wait(0.1)[0]:
                    pass


def _error(columns: _Columns, bound: float) -> float:
    """By how much a dual bound may be too high, in units.

    Proof. The bound of a relaxation is what its multipliers give with every column at the better
    end of its range. A reduced cost may have the wrong sign, by up to the dual tolerance; that
    shifts the bound by no more than the tolerance times the column's range. Relaxations below the
    bound have no time above it. Each node of the tree has such a relaxation, so the least of
    their bounds errs by no more; comparing it with an incumbent adds one tolerance.
    """
    upper = np.where(columns.whole, columns.upper, np.minimum(columns.upper, max(bound, 0.0)))
    ranges = np.maximum(upper - np.maximum(columns.lower, 0.0), 0.0)
    return DUAL_TOLERANCE * float(ranges.sum()) + TOLERANCE * (1 + abs(bound) * 1e-6)


def run(model: pulp.LpProblem, options: SolveOptions) -> Outcome:
    """What HiGHS finds out about a model that minimises a time in ns, whole in every solution.

    Uses the time limit, seed, workers and gap of the options, and starts from initial values. One
    worker and one seed give the same solution, unless the time limit strikes. Raises ValueError
    for an invalid model, and passes KeyboardInterrupt on. A status that is neither a solution, a
    proof nor a limit is trouble: UNKNOWN, UNFINISHED, without bound. So are literals beside times
    out of the safe range.
    """
    native, columns = _scaled(model)
    engine = highspy.Highs()
    _configure(engine, options)
    if columns.whole.any() and (moved := _rounding(native, columns)) > TOLERANCE:
        longer = 2.0 ** math.ceil(math.log2(moved / TOLERANCE))
        if longer * UNIT_NS > LONGEST_UNIT_NS:
            said = f"HiGHS: rounding may move a row of times by {moved * UNIT_NS:.2g} ns"
            runtime_s = engine.getRunTime()
            return Outcome(Status.UNKNOWN, Termination.UNFINISHED, runtime_s, trouble=said)
        native, columns = _scaled(model, longer * UNIT_NS)
    if engine.passModel(native) == highspy.HighsStatus.kError:
        raise ValueError("HiGHS refuses the model")
    # The initial values of the literals that have one
    hinted = {n: v.varValue for n, v in enumerate(model.variables()) if v.varValue is not None}
    if hinted:
        indices = np.array(list(hinted), dtype=np.int32)
        engine.setSolution(len(hinted), indices, np.array(list(hinted.values()), dtype=np.float64))
    _solve(engine)
    return _outcome(engine, columns)


def write(model: pulp.LpProblem, path: Path) -> None:
    """Writes a model with its times in milliseconds, to the nanosecond: as free MPS or as LP.

    Engines let a literal be off by 1e-6: with times in nanoseconds their rows would be beyond the
    precision of doubles at that tolerance. The file begins with `NOTE`.
    """
    (native, _), mark = _scaled(model, NS_PER_MS), "*" if path.suffix == ".mps" else "\\"
    engine = highspy.Highs()
    native.col_names_ = [variable.name for variable in model.variables()]
    native.row_names_ = list(model._constraints)
    engine.setOptionValue("output_flag", False)
    if engine.passModel(native) == highspy.HighsStatus.kError:
        raise ValueError("HiGHS refuses the model")
    if engine.writeModel(str(path)) != highspy.HighsStatus.kOk:
        raise OSError(f"HiGHS could not write {path.name}")
    note = "".join(f"{mark} {line}\n" for line in NOTE)
    path.write_text(note + path.read_text())


def _outcome(engine: Any, columns: _Columns) -> Outcome:
    code, info, runtime_s = engine.getModelStatus(), engine.getInfo(), engine.getRunTime()
    said = engine.modelStatusToString(code)
    if code in _REFUSED:
        raise ValueError(f"HiGHS refuses the model: {said}")
    if code == highspy.HighsModelStatus.kInfeasible:
        return Outcome(Status.INFEASIBLE, Termination.CLOSED, runtime_s)
    optimal = code == highspy.HighsModelStatus.kOptimal
    has_solution = info.primal_solution_status == 2
    if not ((optimal and has_solution) or code in _STOPPED):
        trouble = f"HiGHS: {said}"
        return Outcome(Status.UNKNOWN, Termination.UNFINISHED, runtime_s, trouble=trouble)
    proved = info.mip_dual_bound if columns.whole.any() else info.objective_function_value
    if not columns.whole.any() and not optimal:
        proved = -math.inf
    bound = None  # else the least integer that the proved bound of an integer objective allows
    if math.isfinite(proved):
        bound = max(0, math.ceil((proved - _error(columns, proved)) * columns.unit_ns))
    if not has_solution:
        return Outcome(Status.UNKNOWN, Termination.TIME_LIMIT, runtime_s, bound=bound)
    return Outcome(
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        termination=Termination.CLOSED if optimal else Termination.TIME_LIMIT,
        objective=round(info.objective_function_value * columns.unit_ns),
        bound=bound,
        runtime_s=runtime_s,
        values=tuple(np.array(engine.getSolution().col_value) * columns.scale),
    )
