"""Strategies of a step of mixed lengths as plan files, which `export` and `switch` take."""

import re

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.lengths.row_times import instance_of_rows
from solver.document import PlanDocument
from solver.evaluate.evaluation import checked
from solver.evaluate.run_plan import judged
from solver.lengths.candidates import Candidates


def row_plans(instance: Instance, candidates: Candidates) -> list[PlanDocument]:
    """[strategy], of rows as long as it takes; none where strategies were measured."""
    files = []
    for strategy, plan in zip(
        candidates.mixed.strategies, candidates.plans or (), strict=bool(candidates.plans)
    ):
        rows = instance_of_rows(instance, plan, strategy.longest)
        document, broken, faults = checked(judged(rows, plan))
        if broken or faults:
            raise PlanError(strategy.name, (*broken, *faults)[0], "a plan that verify accepts")
        files.append(document)
    return files


def file_name(strategy: str) -> str:
    """Of the plan of a strategy, as `dp-4-tp-8-pp-1.json`."""
    return f"{re.sub(r'[^a-z0-9]+', '-', strategy.lower())}.json"
