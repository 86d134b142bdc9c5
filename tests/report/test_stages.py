"""Tables of stages, places, memory and traffic say what the plan file says."""

from itertools import product

from solver.options import SolveOptions
from solver.report.stages import all_stages, placed
from solver.search.driver import solve
from tests.hand_made import document_of
from tests.report.shown import PLANS, check_stored
from tests.search.spaces import joined

#: Chunks are lines of their stage; columns stand there where they are needed.
test_tables_of_small_plans = check_stored(*PLANS)


def test_joined_nodes_are_told_machine_by_machine() -> None:
    """Plans count GPUs 0 to 3 on a node of two machines; each of these has 0 and 1."""
    stages = all_stages(document_of(solve(joined(3), SolveOptions())))
    assert {(stage.node, gpu) for stage in stages for gpu in stage.gpus} == set(
        product(("fast-0", "fast-2"), range(4))
    )
    assert placed(joined(3).cluster, stages) == "fast-0..3: 0-1"
