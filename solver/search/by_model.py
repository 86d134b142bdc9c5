"""One shape by a joint model with critical-path cuts: slower, a second and a third witness."""

import logging
import time

from formulations.plan import simulable
from solver.layered.problem import Intervals
from solver.options import SolveOptions
from solver.search.closing import ShapeAnswer, ShapeEngine, Stop
from solver.search.critical_path import solve_shape
from solver.search.engines import Family, model_engine
from solver.search.paths import CutPool

_log = logging.getLogger(__name__)


def shape_engine(family: Family, options: SolveOptions, pool: CutPool, begin: float) -> ShapeEngine:
    """Engine with one cut pool for all shapes; exact whatever gap is asked for.

    begin: of the time limit, on the monotonic clock. The library is loaded for the first shape.
    """

    def close(intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ShapeAnswer:
        tables = intervals.tables
        if stop() or not simulable(tables.instance, tables.shape):
            return ShapeAnswer(None, None, False)
        limit = options.time_limit_s
        left_s = None if limit is None else limit - (time.monotonic() - begin)
        outcome = solve_shape(
            tables,
            model_engine(family),
            cutoff_ns=cutoff,
            time_limit_s=left_s,
            seed=options.seed,
            workers=options.workers,
            pool=pool,
        )
        if outcome.trouble is not None:
            _log.warning("%s; this shape stays open: %s", outcome.trouble, tables.shape)
        complete = outcome.status in ("optimal", "bounded", "infeasible")
        better = outcome.step_time_ns is not None and outcome.step_time_ns < cutoff
        if not better:
            return ShapeAnswer(None, None, complete, outcome.bound_ns or 0)
        return ShapeAnswer(outcome.plan, outcome.step_time_ns, complete, outcome.bound_ns or 0)

    return close
