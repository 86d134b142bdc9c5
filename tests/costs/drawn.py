"""Random plans of every feature, with the tables of their configurations, for recorded figures."""

from collections.abc import Iterator
from functools import cache

from formulations.costs.plan_costs import plan_tables
from formulations.costs.tables import CostTables
from formulations.instance import Instance
from formulations.plan import Plan
from tests.oracles.cases import cases

Drawn = tuple[str, Instance, Plan, CostTables]


@cache
def _of_seed(seed: int) -> list[Drawn]:
    plans = enumerate(cases(seed))
    return [(f"{seed}.{n}", c.instance, c.plan, plan_tables(*c[:2])[0]) for n, c in plans]


def drawn(*seeds: int) -> Iterator[Drawn]:
    """Name, instance, plan and tables of each plan of these seeds."""
    return (each for seed in seeds for each in _of_seed(seed))
