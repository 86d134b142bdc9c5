"""Pipelines and their micro-batches in one model, by hand; `tests/fleets` tries all choices."""

from collections.abc import Sequence
from typing import Any

import pytest

from bench.instantiation import InstantiationModel
from formulations.pipelines import Instantiation, InstantiationProblem, PipelineKind
from tests.twins import TWINS, Twin, solved


def problem(exchanges: Sequence[int] = (), **fields: Any) -> InstantiationProblem:
    """Pipelines of one node, 10 ns a micro-batch, and of two nodes, 4 ns; four nodes in all."""
    kinds = tuple(
        PipelineKind((nodes,), [each_ns * m for m in range(1, 9)], exchanges)
        for nodes, each_ns in ((1, 10), (2, 4))
    )
    usual: dict[str, object] = {"available": (4,), "faults": 0, "micro_batches": 8}
    return InstantiationProblem(kinds=kinds, **(usual | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(
    ("fields", "step_ns"),
    [
        ({}, 16),  # two of two nodes run four micro-batches each
        ({"faults": 2}, 20),  # three at least: two of one node with 1, 2 x 10, and 6 x 4 = 24; or
        ({"faults": 3}, 20),  # four of one node, two micro-batches each
        ({"faults": 3, "exchanges": (0, 0, 0, 5)}, 25),
    ],
)
def test_the_least_step_by_hand(twin: Twin, fields: dict[str, Any], step_ns: int) -> None:
    """Of three pipelines 2, 1, 1 nodes: 5 micro-batches at 4, and 3 over two at 10: 20 ns."""
    built = InstantiationModel(twin.model(), problem(**fields))
    outcome = solved(built.model)
    assert outcome.objective == step_ns
    assert outcome.values is not None
    choice = built.extract(outcome.values)
    assert sum(map(sum, choice.shares)) == 8
    assert choice.num_pipelines > built.problem.faults


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_variables_stand_for_a_choice(twin: Twin) -> None:
    """One pipeline of one node with 2, one with 1, and one of two nodes with 5 micro-batches."""
    built = InstantiationModel(twin.model(), problem(faults=2))
    choice = Instantiation(((2, 1), (5,)))
    values = {index: value for v, value in built.assignment(choice) for index in v.terms}
    counts = [[values[i] for v in count for i in v.terms] for count in built.count]
    assert (counts[0][:3], counts[1][:6]) == ([2, 1, 0], [1, 1, 1, 1, 1, 0])
    assert {*values} <= {*range(len(built.model.variables))}
