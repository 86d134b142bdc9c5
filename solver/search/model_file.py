"""The joint model of a plan's configuration as a file, for other engines and other eyes."""

import logging
import os
import tempfile
from pathlib import Path

from formulations.costs.placement import Placer
from formulations.decisions import Given, decisions_of
from formulations.errors import PlannerError
from formulations.models.step_time import OneConfig
from formulations.plan import Plan
from solver.heuristics.balance import SplitSpace
from solver.heuristics.time_tables import TimeTables
from solver.options import SolveOptions
from solver.search.critical_path import model_engine
from solver.search.paths import CutPool, first_cuts, harvest, largest_share, shares_of

_log = logging.getLogger(__name__)


def write_model(options: SolveOptions, times: TimeTables, plan: Plan | None, pool: CutPool) -> None:
    """Writes the joint model of the plan's config where the options ask for it.

    With cuts of a pool, the first ones and the plan's own. No replica may have more micro-batches
    than a plan as fast as this one can have. The plan is valued at its simulated step time; if the
    pool's cuts proved that no plan is faster, that is the optimum. The file is written whole or not
    at all; without a plan it is not.
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
    engine, tables, config = model_engine(method), times.costs(plan.config), plan.config
    decisions, space = decisions_of(tables.instance, plan), SplitSpace(tables)
    placement = Placer(tables).costs(decisions.order)
    step_time_ns = harvest(space, placement, decisions, (), 0).step_time_ns
    given = Given(largest_share=largest_share(tables, step_time_ns))
    built, shares = OneConfig(engine.model(), tables, given), shares_of(tables, given)
    cuts = {*pool.of(config), *harvest(space, placement, decisions, shares, 0).cuts}
    for m in shares:
        cuts.update(first_cuts(config.schedule, config.pp, m, *config.chunking))
    for cut in sorted(cuts):
        built.add_cut(cut)
    target = Path(os.path.realpath(path))
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            written = Path(folder) / target.name
            engine.write(built.model.native, written)
            os.replace(written, target)
    except OSError as error:
        raise PlannerError(f"cannot write {path}: {error.strerror or error}") from error
