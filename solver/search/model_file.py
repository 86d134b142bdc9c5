"""The joint model of a plan's configuration as a file, for other engines and other eyes."""

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
from formulations.models.step_time import OneConfig
from formulations.paths import PathCut
from formulations.plan import Plan
from solver.heuristics.time_tables import TimeTables
from solver.options import SolveOptions
from solver.search.engines import ModelEngine, model_engine
from solver.search.paths import CutPool, first_cuts, harvest, largest_share, shares_of

_log = logging.getLogger(__name__)


def model_of(
    engine: ModelEngine, tables: CostTables, plan: Plan, pool_cuts: Iterable[PathCut]
) -> OneConfig:
    """The joint model of a plan's config with cuts of a pool, the first ones and the plan's own.

    No replica may have more micro-batches than a plan as fast as this one can have. The plan is
    valued at its simulated step time; if the pool's cuts proved that no plan is faster, that is
    the optimum.
    """
    decisions = decisions_of(tables.instance, plan)
    placement = Placer(tables).costs(decisions.order)
    stages = StageCosts(tables)
    step_time_ns = harvest(stages, placement, decisions, (), 0).step_time_ns
    given = Given(largest_share=largest_share(tables, step_time_ns))
    config, shares = tables.config, shares_of(tables, given)
    built = OneConfig(engine.model(), tables, given)
    cuts = {*pool_cuts, *harvest(stages, placement, decisions, shares, 0).cuts}
    for m in shares:
        cuts.update(first_cuts(config.schedule, config.pp, m, config.vpp))
    for cut in sorted(cuts):
        built.add_cut(cut)
    return built


def write_model(options: SolveOptions, times: TimeTables, plan: Plan | None, pool: CutPool) -> None:
    """Writes the model of the plan's config, with the cuts of a pool, where the options ask for it.

    The file is written whole or not at all; without a plan it is not.
    """
    path, method = options.write_model, options.method
    if path is None or method not in ("cpsat", "milp"):
        return
    if plan is None:
        _log.warning("%s is not written: there is no plan whose configuration it would model", path)
        return
    if plan.config.per_stage:
        _log.warning("%s is not written: every stage of the plan has degrees of its own", path)
        return
    engine = model_engine(method)
    built = model_of(engine, times.costs(plan.config), plan, pool.of(plan.config))
    target = Path(os.path.realpath(path))
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            written = Path(folder) / target.name
            engine.write(built.model.native, written)
            os.replace(written, target)
    except OSError as error:
        raise PlannerError(f"cannot write {path}: {error.strerror or error}") from error
