"""Layers, degrees and configurations in words."""

from typing import get_args

from formulations.instance.search import DegreesPer, ScheduleName
from formulations.instance.workload import Recompute
from formulations.lengths.problem import Moves
from formulations.plan import Degrees
from solver.report.naming import WORDS, by_group, degrees_line, degrees_of, one_line, tensor_text
from solver.result import Reason, Status, Termination
from tests.certified_cases import CASES
from tests.conftest import present
from tests.small_instances import plain_config


def test_every_value_has_its_words() -> None:
    values = {"recompute": Recompute, "degrees": DegreesPer, "schedule": ScheduleName}
    values |= {"closed": Reason, "moves": Moves}
    for kind, literal in values.items():
        assert WORDS[kind].keys() == {*get_args(literal)}
    assert WORDS["status"].keys() == {*Status}
    assert WORDS["termination"].keys() == {*Termination}


def test_unlike_tensor_groups_are_all_named() -> None:
    """Each kind once, with its parts; no degrees at all: stages have their own."""
    assert tensor_text([Degrees(tp=2), Degrees(tp=1, parts=4), Degrees(tp=2)]) == "2 / 1*4"
    assert tensor_text([]) == "by stage"


def test_configs_among_others() -> None:
    """Tensor x data x pipeline and micro-batch; in full for `verify`."""
    config = plain_config((2, 1), tp=2, dp=3)
    assert degrees_line(config, config.degrees_used) == "2 x 3 x 1, 1"
    assert one_line(config) == (
        "tensor 2 x data 3 x pipeline 1, micro-batch 1, 1f1b, recomputed none, ZeRO 0, nodes 2 + 1"
    )
    kept = config.but(zero=3, sync_each_batch=False)
    assert ", ZeRO 3 that keeps gradients, nodes" in one_line(kept)
    assert by_group(CASES["pipelined"]().instance, config) is None  # alike and undivided


def test_unlike_degrees_of_groups() -> None:
    """Two groups of which one shares stages among two GPUs; those of a plan are its groups'."""
    document = CASES["pipelined"]()
    config = plain_config((1, 1), tp=2, dp=1)
    unlike = config.model_copy(update={"degrees": (Degrees(tp=2), Degrees(tp=1, parts=2))})
    named = "fast: tp 2 x 1, slow: tp 1 x 2 parts"
    assert by_group(document.instance, unlike) == named
    assert degrees_of(document) == present(document.config).degrees_used
