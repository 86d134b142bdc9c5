"""The joint model of a plan's shape as a file, for other engines and other eyes."""

import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from formulations.costs.placement import Placer
from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables
from formulations.decisions import Given, decisions_of
from formulations.errors import PlannerError
from formulations.models.step_time import OneShape
from formulations.paths import PathCut
from formulations.plan import Plan
from solver.heuristics.time_tables import TimeTables
from solver.options import SolveOptions
from solver.search.engines import ModelEngine, model_engine
from solver.search.paths import CutPool, first_cuts, harvest, largest_share, shares_of

_log = logging.getLogger(__name__)


def model_of(
    engine: ModelEngine, tables: CostTables, plan: Plan, pool_cuts: Iterable[PathCut]
) -> OneShape:
    """The joint model of a plan's shape with cuts of a pool, the first ones and the plan's own.

    No replica may have more micro-batches than a plan as fast as this one can have. The plan is
    valued at its simulated step time; if the pool's cuts proved that no plan is faster, that is
    the optimum.
    """
    decisions = decisions_of(tables.instance, plan)
    placement = Placer(tables).costs(decisions.order)
    stages = StageCosts(tables)
    step_time_ns = harvest(stages, placement, decisions, (), 0).step_time_ns
    given = Given(largest_share=largest_share(tables, step_time_ns))
    shape, shares = tables.shape, shares_of(tables, given)
    built = OneShape(engine.model(), tables, given)
    cuts = {*pool_cuts, *harvest(stages, placement, decisions, shares, 0).cuts}
    for m in shares:
        cuts.update(first_cuts(shape.schedule, shape.pp, m, shape.vpp))
    for cut in sorted(cuts):
        built.add_cut(cut)
    return built


def write_model(options: SolveOptions, times: TimeTables, plan: Plan | None, pool: CutPool) -> None:
    """Writes the model of the plan's shape, with the cuts of a pool, where the options ask for it.

    The file is written whole or not at all; without a plan it is not.
    """
    path, method = options.write_model, options.method
    if path is None or method not in ("cpsat", "milp"):
        return
    if plan is None:
        _log.warning("%s is not written: there is no plan whose shape it would model", path)
        return
    if plan.shape.per_stage:
        _log.warning("%s is not written: every stage of the plan has degrees of its own", path)
        return
    engine = model_engine(method)
    built = model_of(engine, times.costs(plan.shape), plan, pool.of(plan.shape))
    target = Path(os.path.realpath(path))
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            written = Path(folder) / target.name
            engine.write(built.model.native, written)
            os.replace(written, target)
    except OSError as error:
        raise PlannerError(f"cannot write {path}: {error.strerror or error}") from error
