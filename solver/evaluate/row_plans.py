"""Strategies of a step of mixed lengths as plan files, which `export` and `switch` take."""

import re
from collections.abc import Iterable

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.lengths.problem import Strategy
from solver.document import PlanDocument
from solver.evaluate.checked import checked
from solver.evaluate.run_plan import judged
from solver.lengths.candidates import Candidates
from solver.lengths.layouts import instance_of_rows


def row_plans(
    instance: Instance, found: Candidates, strategies: Iterable[int]
) -> dict[str, PlanDocument]:
    """By file name, as `dp-4-tp-8-pp-1.json`, of so many rows as long as the strategy takes.

    Raises PlanError where strategies were measured, and have no plans.
    """
    if found.plans is None:
        raise PlanError("--plans", "strategies that were measured", "those of the search")
    files = {}
    for q in strategies:
        strategy, plan = found.mixed.strategies[q], found.plans[q]
        assert isinstance(strategy, Strategy)
        rows = instance_of_rows(instance, plan, strategy.longest)
        document, broken, others = checked(judged(rows, plan))
        if broken or others:
            raise PlanError(strategy.name, (*broken, *others)[0], "a plan that verify accepts")
        files[f"{re.sub(r'[^a-z0-9]+', '-', strategy.name.lower())}.json"] = document
    return files
