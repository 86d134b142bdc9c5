"""Runs that are said in words: degrees, split, strategies."""

import pytest

from formulations.errors import PlanError
from solver.evaluate.launched import block_boundaries, num_blocks, run_of_degrees
from tests.export_cases import instance_of

GPT2 = instance_of()  #: twelve blocks between embedding and head


def test_what_is_left_out_is_one() -> None:
    """And 1F1B, no ZeRO, nothing recomputed, an even split."""
    run = run_of_degrees("pp=4", GPT2)
    assert (run.tp, run.cp, run.ep, run.etp, run.dp, run.vpp) == (1, 1, 1, None, None, 1)
    assert (run.micro_batch, run.schedule, run.zero, run.recompute) == (1, "1f1b", 0, "none")
    assert run.boundaries == (0, 4, 7, 10, 14)


def test_what_is_said() -> None:
    """With blanks; chunks are interleaved; experts whole where etp is 1 beside tensor groups."""
    run = run_of_degrees("tp=2, pp=2, vpp=2, etp=1, ep=4, dp=2, zero=1, split=3/2/3/4", GPT2)
    assert (run.tp, run.ep, run.etp, run.dp, run.zero) == (2, 4, 1, 2, 1)
    assert (run.schedule, run.boundaries) == ("interleaved", (0, 4, 6, 9, 14))
    assert run_of_degrees("tp=2,etp=2", GPT2).etp is None
    assert run_of_degrees("tp=1,etp=1", GPT2).etp is None


@pytest.mark.parametrize(
    ("blocks", "cuts"),
    [([12], (0, 14)), ([6, 6], (0, 7, 14)), ([0, 12], (0, 1, 14)), ([12, 0], (0, 13, 14))],
)
def test_boundaries(blocks: list[int], cuts: tuple[int, ...]) -> None:
    """The embedding goes with the first block, or alone; the head with the last, or alone."""
    assert num_blocks(GPT2) == 12
    assert block_boundaries(GPT2, blocks) == cuts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=3", "'x=3'; allowed: NAME=VALUE with tp, cp, ep, etp, pp, dp"),
        ("tp", "'tp'; allowed: NAME=VALUE"),
        ("tp=1,tp=2", "tp twice; allowed: each name once"),
        ("tp=two", "tp=two; allowed: a whole number from 1 on"),
        ("schedule=foo", "schedule=foo; allowed: 1f1b or gpipe"),
        ("zero=4", "zero=4; allowed: 0 or 1 or 2 or 3"),
        ("schedule=interleaved", "schedule=interleaved with vpp=1; allowed"),
        ("vpp=2", "vpp=2 with pp=1; allowed: vpp=1, or several stages"),
        ("pp=8", "12 blocks on 8 stages; allowed: a divisor, or split=9/7/5/3"),
        ("pp=4,split=3/3/3/4", "13 blocks on 4 stages; allowed: 12 blocks on 4 stages"),
        ("pp=4,split=6/6", "12 blocks on 2 stages; allowed: 12 blocks on 4 stages"),
        ("pp=4,split=3-3", "split=3-3; allowed: blocks of each stage"),
        ("pp=4,split=4/4/0/4", "split=4/4/0/4; allowed: a block on every stage but"),
        ("tp=4,etp=2", "etp=2 with tp=4; allowed: 1 or 4"),
    ],
)
def test_refused(text: str, message: str) -> None:
    """The option, what was found, what is allowed."""
    with pytest.raises(PlanError, match=f"^--degrees: .*{message}"):
        run_of_degrees(text, GPT2)
