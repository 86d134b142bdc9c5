"""What single decisions of the best plan bring, put into the plan that is run."""

import pytest

from solver.evaluate.evaluation import compared, predicted
from solver.evaluate.run_plan import read_run
from solver.options import SolveOptions
from solver.result import Evaluation
from tests.conftest import present, text_of
from tests.export_cases import instance_of
from tests.recorded import Cases, recorded


def evaluated(
    text: str, search: str, order: str = "small,big,small", workload: str = "catalogue: gpt2"
) -> Evaluation:
    run = read_run(instance_of(workload, search), stated=text, order=order)
    return compared(run, predicted(run)[1], SolveOptions(gap=0.0))


@recorded("changes")
def test_changes_are_the_recorded_ones() -> Cases:
    """Of degrees, experts, sequences, nodes; a split by itself takes the time that is told."""
    for line in text_of("changes.txt").splitlines():
        text, order, workload, search = line.split(" | ")
        run = evaluated(text, search, order, workload)
        yield text, [[change.change, change.saves_at_least] for change in run.changes]
        for change in run.changes:
            if change.change.startswith("split ") and "6/2/2/2" in text:
                split = text.replace("6/2/2/2", change.change.split()[1])
                again = evaluated(split, search).objective
                assert change.saves_at_least == pytest.approx(1 - again / run.objective)
                assert change.step_time_s == again / 1e9


def test_bug_chunks_with_other_micro_batches() -> None:
    """Interleaving needs multiples of pp micro-batches: sizes that leave others are not tried."""
    search = "target: any, pipeline_parallel: [4], tensor_parallel: [1], micro_batch: [4]"
    evaluation = evaluated("pp=4,vpp=3,micro_batch=2", f"{search}, schedule: [1f1b]", "big")
    assert "micro-batches" in [change.change.split()[0] for change in evaluation.changes]
    evaluation = evaluated("pp=4,vpp=3,micro_batch=1", f"{search}, schedule: [1f1b]")
    assert "micro-batches" not in [change.change.split()[0] for change in evaluation.changes]


def test_what_to_change_first_is_named_as_the_framework_has_it() -> None:
    """The lines that the best single change writes otherwise; none for a target without files."""
    search = "pipeline_parallel: [4], tensor_parallel: [1], micro_batch: [1, 2, 4], zero: [0]"
    text = "pp=4,micro_batch=1,split=6/2/2/2"
    evaluation = evaluated(text, f"{search}, target: megatron")
    first = evaluation.changes[0]
    assert present(first.saves_at_least) > 0
    assert first.change.startswith("split ")
    blocks = [int(count) for count in first.change.split()[1].split("/")]
    pieces = ["E", *[""] * 3]
    layout = "|".join(
        piece + (f"t*{count}" if count > 1 else "t")
        for piece, count in zip(pieces, blocks, strict=True)
    )
    assert evaluation.settings == (f"--pipeline-model-parallel-layout {layout}L",)
    assert evaluated(text, f"{search}, target: any").settings == ()
