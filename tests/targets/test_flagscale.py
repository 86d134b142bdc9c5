"""FlagScale: which stages may stand in a pipeline that begins with another."""

import pytest

from formulations.instance.targets import TARGETS
from formulations.instance.targets.flagscale import mesh_fault
from formulations.plan import Degrees
from tests.targets.test_launcher import GPT2, PLAIN

TWO, ONE = Degrees(tp=2), Degrees(tp=1)
PARTS_2, PARTS_3, PARTS_4 = (Degrees(tp=1, parts=n) for n in (2, 3, 4))


@pytest.mark.parametrize(
    ("first", "slot", "splits", "zero", "last", "words"),
    [
        (TWO, ONE, False, 0, False, "need sequence_parallel: true"),
        (TWO, TWO, False, 0, False, None),
        (TWO, ONE, True, 0, False, None),
        (TWO, ONE, True, 0, True, "tied embeddings lie on tensor groups of one size"),
        (PARTS_4, PARTS_2, True, 1, True, None),
        (PARTS_2, PARTS_4, True, 1, True, None),
        (PARTS_3, PARTS_2, True, 1, True, "parts of first or last stage divide the other's"),
        (PARTS_3, PARTS_2, True, 1, False, None),
        (PARTS_3, PARTS_2, True, 0, True, None),
    ],
)
def test_stages_of_one_pipeline(
    first: Degrees, slot: Degrees, splits: bool, zero: int, last: bool, words: str | None
) -> None:
    """Of a model with tied embeddings; without them both ends may be unlike."""
    fault = mesh_fault(GPT2, splits, zero, first, slot, last)
    assert (fault is None) == (words is None)
    assert (words or "") in (fault or "")
    assert mesh_fault(PLAIN, True, 0, TWO, ONE, last=True) is None


def test_recomputation_is_megatrons_where_stages_are_alike() -> None:
    """Then selective recomputation is no matter of stages."""
    assert "recompute" in TARGETS["flagscale"].rules("stage")
    assert "recompute" not in TARGETS["flagscale"].rules("plan")
    assert TARGETS["torchtitan"].rules("plan") == TARGETS["torchtitan"].rules("stage")
