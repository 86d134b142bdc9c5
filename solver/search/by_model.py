"""All configs that bounds leave open by one model, CP-SAT's or MILP's: two more witnesses.

And the model of a plan's configuration as a file, for other engines and other eyes.

The model is exact whatever gap is asked for, but looks for no plan that is within the gap of the
best one. What it proves of the objective bounds each of the configurations that it holds.

An engine that counts in floats proves nothing alone: HiGHS has called models infeasible that have
plans. A configuration is closed by what it says if exhaustive search, in integers, finds no plan
either; else it stays open, with the bound that was known before, and a line says so. So MILP closes
a configuration wrongly only where both err, and is a witness still: of plans that exhaustive search
misses.
"""

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Given, decisions_of, even_shares
from formulations.errors import PlannerError
from formulations.models.step_time import OneConfig
from formulations.plan import Configuration, Plan, simulable
from formulations.space.slots import layouts
from solver.enumeration.engine import ConfigAnswer
from solver.graph.problem import Intervals
from solver.heuristics.balance import SplitSpace
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Stop
from solver.options import SolveOptions
from solver.result import ConfigRecord, Reason, objective_weight
from solver.search.critical_path import CutLoop, Family, Found, model_engine
from solver.search.enumeration import enumerate_config
from solver.search.fathoming import Closer, Closing
from solver.search.incumbents import Incumbent
from solver.search.paths import CutPool, OpenConfig, first_cuts, harvest, largest_share, shares_of

#: Ways to lay out stages with degrees of their own that a model tells apart, of one configuration.
MOST_LAYOUTS = 200

_log = logging.getLogger(__name__)


class Collector:
    """An engine for one config that closes none: it keeps the costs that the model is made of.

    But configurations whose stages have degrees of their own, in too many ways or in none: these it
    enumerates.
    """

    def __init__(self) -> None:
        self.tables = list[CostTables]()

    def __call__(self, intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ConfigAnswer:
        """Nothing is known of the configuration yet."""
        tables = intervals.tables
        if tables.by_place is not None:
            num_layouts = len(list(islice(layouts(tables.by_place), MOST_LAYOUTS + 1)))
            if not 0 < num_layouts <= MOST_LAYOUTS:
                return enumerate_config(intervals, cutoff, gap, stop)
        if not stop() and simulable(tables.instance, tables.config):
            self.tables.append(tables)
        return ConfigAnswer(None, None, False)


class AtOnce:
    """One run of a model: the configurations that it is for, and how they stand.

    bounds_ns: what is proved of each configuration.
    """

    def __init__(
        self,
        family: Family,
        closer: Closer,
        open_: Sequence[CostTables],
        bounds_ns: Sequence[int],
        incumbent: Incumbent,
        pool: CutPool,
    ) -> None:
        self.family: Family = family
        self.closer = closer
        instance = closer.instance
        configs = list[OpenConfig]()
        for tables, bound_ns in zip(open_, bounds_ns, strict=True):
            price, givens = objective_weight(instance, tables.plan_config), [ALL_FREE]
            if tables.by_place is not None:  # every layout is a part of its own
                shares = even_shares(tables)
                orders = layouts(tables.by_place)
                givens = [Given(order=order, micro_batches=shares) for order in orders]
            configs += [OpenConfig(tables, price, bound_ns, given) for given in givens]
        best, start = None, None
        if incumbent.found is not None:
            plan, step_time_ns = incumbent.found
            best = incumbent.objective
            named = [config.tables.plan_config for config in configs]
            if plan.config in named and not plan.config.per_stage:  # which does not tell its layout
                index = named.index(plan.config)
                start = Found(index, decisions_of(instance, plan), step_time_ns)
        engine = model_engine(family)
        self.loop = CutLoop(engine, configs, closer.target, best, start, pool)
        self.confirmed = engine.counts_whole  #: what the engine closes is closed
        self.doubtful = set[Configuration]()  #: but these are not

    def rounds(self, options: SolveOptions, stop: Stop) -> Iterator[None]:
        """Closes what it can; between two rounds `closings` says how far it is."""
        loop = self.loop
        yield from loop.run(replace(options, gap=0.0), stop)
        if loop.trouble is not None:
            still_open = sum(map(loop.is_open, range(len(loop.configs))))
            _log.warning("%s; %d configurations stay open", loop.trouble, still_open)
            return
        # Exhaustive search is asked for plans in the configs that the engine says to have none.
        for config, indices in [] if self.confirmed else self._parts().items():
            if any(map(loop.is_open, indices)):
                continue
            target_ns = loop.target_ns(indices[0])
            intervals = Intervals(loop.configs[indices[0]].tables)
            answer = enumerate_config(intervals, target_ns, 0.0, stop)
            if answer.plan is not None or not answer.complete:
                self.doubtful.add(config)
            if answer.plan is not None:
                doubt = f"none below {target_ns} ns where one of {answer.step_time_ns} ns is"
                _log.warning("numerical trouble: %s; a configuration stays open", doubt)
        self.confirmed = True

    def _parts(self) -> dict[Configuration, list[int]]:
        """Of a config in the model: a part per layout of stages with own degrees, else one."""
        parts, configs = dict[Configuration, list[int]](), self.loop.configs
        in_model = {configs[index].tables.plan_config for index in self.loop.model.held}
        for index, part in enumerate(configs):
            if part.tables.plan_config in in_model:
                parts.setdefault(part.tables.plan_config, []).append(index)
        return parts

    def closings(self) -> Iterator[Closing]:
        """The configurations that the model holds as they stand, with the best plan found."""
        loop = self.loop
        for config, indices in self._parts().items():
            plan, bound_ns = None, min(loop.bounds_ns[index] for index in indices)
            if loop.found is not None and loop.found.index in indices:
                tables = loop.configs[loop.found.index].tables
                plan = loop.found.decisions.plan(tables), loop.found.step_time_ns
            reason: Reason = "open"
            target_ns = loop.target_ns(indices[0])
            said_closed = not any(map(loop.is_open, indices))
            if said_closed and self.confirmed and config not in self.doubtful:
                beyond_limits = target_ns >= self.closer.refused(config)
                reason = "infeasible" if beyond_limits else "solved" if plan else "bounded"
                bound_ns = target_ns
            elif said_closed:
                bound_ns = min(loop.configs[index].bound_ns for index in indices)
            record = ConfigRecord(
                config=config,
                reason=reason,
                proof=self.family,
                bound_ns=None if reason == "infeasible" else bound_ns,
            )
            yield Closing(record, plan)


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
