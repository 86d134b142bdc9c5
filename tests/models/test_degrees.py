"""The models that choose the configuration too, CP-SAT and MILP: brute force over all configs."""

from collections import deque
from itertools import product

import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Given
from formulations.instance import Instance
from formulations.models.degrees import ManyConfigs
from formulations.space import configs
from solver.options import SolveOptions
from solver.search import critical_path
from solver.search.critical_path import CutLoop, model_engine
from solver.search.paths import OpenConfig
from tests.brute_force import optimum_ns
from tests.conftest import present
from tests.random_configs import scheduled, slower, zoned
from tests.recorded import Cases, recorded
from tests.small_instances import random_instance
from tests.twins import TWINS, size_of


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


def test_config_that_no_plan_can_beat_stays_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critical_path, "FIRST_SHAPES", 1)
    tables = next(t for t in all_tables(varied(4)) if optimum_ns(t) is not None)
    best = present(optimum_ns(tables))
    far = OpenConfig(tables, bound_ns=best)
    loop = CutLoop(
        model_engine("cpsat"), [far, OpenConfig(tables)], lambda _, known: int(known or 1 << 56)
    )
    deque(loop.run(SolveOptions(), lambda: False), 0)
    assert (loop.closed, loop.best, loop.model.held) == (True, float(best), [1])


@recorded("degrees")
def test_models_are_the_recorded_ones() -> Cases:
    for seed, twin in product(range(4, 8), TWINS):
        many = ManyConfigs(twin.model())
        for number, tables in enumerate(all_tables(varied(seed))[-4:]):
            many.add_config(tables, 1 + number, Given(max_step_time_ns=10**11))
        yield f"{seed} {twin.name}", size_of(many.model)
