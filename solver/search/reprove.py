"""A second opinion on a closed shape, by another engine than the one that closed it."""

import time
from typing import Literal

from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.plan import Shape
from solver.layered.problem import Intervals
from solver.options import SolveOptions
from solver.result import Proof, Reproof
from solver.search.by_model import shape_engine
from solver.search.closing import ShapeEngine, Stop, enumerate_shape
from solver.search.paths import CutPool


def by_other_engine(
    instance: Instance,
    shape: Shape,
    below_ns: int,
    closed_by: Proof,
    stop: Stop,
    time_limit_s: float | None = None,
) -> Reproof:
    """Whether a plan has a step time below this: by CP-SAT if enumeration says no, or by that."""
    by: Literal["enumeration", "cpsat"] = "cpsat"
    engine: ShapeEngine = enumerate_shape
    if closed_by in ("cpsat", "milp"):
        by = "enumeration"
    else:
        options = SolveOptions(time_limit_s=time_limit_s)
        engine = shape_engine("cpsat", options, CutPool(), time.monotonic())
    answer = engine(Intervals(build_tables(instance, shape)), below_ns, 0.0, stop)
    if answer.plan is not None:
        return Reproof("refuted", by, answer.plan, answer.step_time_ns)
    return Reproof("proved" if answer.complete else "open", by)
