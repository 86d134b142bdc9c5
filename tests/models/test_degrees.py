"""The models that choose the configuration too, CP-SAT and MILP: brute force over all configs."""

from collections import deque
from collections.abc import Sequence
from itertools import product

import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Decisions, Given
from formulations.instance import Instance
from formulations.models.degrees import ManyConfigs
from formulations.plan import Configuration
from formulations.space import configs
from solver.options import SolveOptions
from solver.result import max_step_time_ns, objective_weight
from solver.search import critical_path
from solver.search.critical_path import CutLoop, Family, model_engine
from solver.search.paths import OpenConfig
from tests.brute_force import optimum_ns
from tests.loop_checks import judge
from tests.random_configs import scheduled, slower, zoned
from tests.recorded import as_recorded
from tests.seeds import few_and_many
from tests.small_instances import random_instance
from tests.twins import TWINS, size_of

FAMILIES: tuple[Family, ...] = ("cpsat", "milp")


def varied(seed: int) -> Instance:
    """Tiny instances: all schedules, zones, idle nodes, uneven shares and money in turn.

    Those of money are slow: their times are those of production.
    """
    instance = random_instance(seed)
    instance = scheduled(slower(instance) if seed % 2 else instance, "interleaved", seed)
    search = instance.search.but(
        schedule=("1f1b", "gpipe", "interleaved", "zb-h1"),
        pipeline_parallel=(1, 2, 3),
        idle_nodes=seed % 4 == 1,
        micro_batches="uneven" if seed % 3 == 0 else "even",
    )
    instance = instance.but(
        search=search, objective={"minimize": "cost_per_step" if seed % 2 else "step_time"}
    )
    return zoned(instance, seed) if seed % 5 == 0 else instance


def all_tables(instance: Instance) -> list[CostTables]:
    """Costs of every configuration, at most two dozen of them spread over the plan space."""
    space = list(configs(instance))
    return [build_tables(instance, config) for config in space[:: 1 + len(space) // 24]]


def run(family: Family, tables: Sequence[CostTables]) -> CutLoop:
    open_ = [OpenConfig(one, objective_weight(one.instance, one.config)) for one in tables]

    def beyond(config: Configuration, best: float | None) -> int:
        budget_ns = max_step_time_ns(tables[0].instance, config)
        reached = None if best is None else best / objective_weight(tables[0].instance, config)
        known = [None if budget_ns is None else budget_ns + 1, reached]
        return min([1 << 56, *(-int(-ns // 1) for ns in known if ns is not None)])

    loop = CutLoop(model_engine(family), open_, beyond)
    deque(loop.run(SolveOptions(), lambda: False), 0)
    return loop


def best_of(instance: Instance, tables: Sequence[CostTables]) -> float | None:
    """Least objective by brute force, within the budgets; None if nothing fits."""
    values = []
    for one in tables:
        found, budget_ns = optimum_ns(one), max_step_time_ns(instance, one.config)
        if found is not None and (budget_ns is None or found <= budget_ns):
            values.append(found * objective_weight(instance, one.config))
    return min(values, default=None)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("first", [critical_path.FIRST_SHAPES, 1])
@pytest.mark.parametrize("seeds", few_and_many(range(4, 60), 56))
def test_chosen_config_equals_brute_force(
    seeds: Sequence[int], first: int, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all configs the best plan, proved, in step time or money, whichever enter first; or none.

    HiGHS may contradict the simulator, rarely: then configurations stay open, and nothing is
    claimed.
    """
    monkeypatch.setattr(critical_path, "FIRST_SHAPES", first)
    num_open = 0
    for seed in seeds:
        instance = varied(seed)
        tables = all_tables(instance)
        loop, expected = run(family, tables), best_of(instance, tables)
        if not loop.closed:
            assert (family, loop.trouble is not None) == ("milp", True), seed
            num_open += 1
            continue
        if expected is None:
            assert loop.found is None, seed
            continue
        assert loop.best == pytest.approx(expected, rel=1e-12), seed
        assert loop.found is not None
        made: Decisions = loop.found.decisions
        assert judge(tables[loop.found.index], made) == loop.found.step_time_ns
    assert num_open <= len(seeds) // 20


def test_config_that_no_plan_can_beat_stays_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critical_path, "FIRST_SHAPES", 1)
    tables = next(t for t in all_tables(varied(4)) if optimum_ns(t) is not None)
    best = optimum_ns(tables)
    assert best is not None
    far = OpenConfig(tables, bound_ns=best)
    loop = CutLoop(
        model_engine("cpsat"), [far, OpenConfig(tables)], lambda _, known: int(known or 1 << 56)
    )
    deque(loop.run(SolveOptions(), lambda: False), 0)
    assert (loop.closed, loop.best, loop.model.held) == (True, float(best), [1])


def test_models_are_the_recorded_ones() -> None:
    figures = dict[str, object]()
    for seed, twin in product(range(4, 8), TWINS):
        many = ManyConfigs(twin.model())
        for number, tables in enumerate(all_tables(varied(seed))[-4:]):
            many.add_config(tables, 1 + number, Given(max_step_time_ns=10**11))
        figures[f"{seed} {twin.name}"] = size_of(many.model)
    as_recorded("degrees", figures)


def test_bug_money_of_long_steps_left_64_bits() -> None:
    """Many configurations of an hour and more: CP-SAT refused their sum, each times its weight."""
    tables = all_tables(slower(varied(1), 100))
    loop = run("cpsat", tables)
    assert loop.best == pytest.approx(best_of(tables[0].instance, tables), rel=1e-12)
