"""What hides behind computation; which schedules are plain."""

import pytest

from formulations.instance.search import Overlap, SearchSpace, overlap_catalogue, plain_schedules
from tests.instance.resolved import MINIMAL, broken, parsed

test_lines = broken("zero", "schedule", "overlap", "interleaved")


@pytest.mark.parametrize(
    ("pp", "chunks", "share"), [(1, 1, 0.75), (2, 1, 0.0), (2, 2, 0.5), (2, 8, 0.75)]
)
def test_sync_hides_where_a_replica_is_one_stage(pp: int, chunks: int, share: float) -> None:
    """All of it on one stage, nothing on two, a chunk of two on two with two chunks each."""
    assert Overlap(gradient_sync=0.75).hidden_sync(pp, chunks) == share


def test_overlap_is_none_or_a_frameworks() -> None:
    """Where the instance says nothing, there is no source either."""
    assert parsed(MINIMAL).search.overlap == Overlap()
    named = parsed(MINIMAL + "search: {overlap: megatron}\n").search.overlap
    assert named == overlap_catalogue()["megatron"]
    assert plain_schedules(SearchSpace(schedule=("zb-h1", "gpipe"))) == ["gpipe"]


def test_shares_that_hide_have_sources() -> None:
    for overlap in overlap_catalogue().values():
        assert overlap.kind == "assumed"
        assert len(overlap.source) > 40
