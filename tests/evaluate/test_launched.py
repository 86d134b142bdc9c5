"""Runs that are said in words: degrees, split, strategies."""

from solver.evaluate.launched import run_of_degrees
from tests.export_cases import instance_of
from tests.refusals import check_refusals

GPT2 = instance_of()  #: twelve blocks between embedding and head


def test_what_is_said() -> None:
    """Chunks are interleaved; experts whole where etp is 1 beside tensor groups; others are 1."""
    run = run_of_degrees("tp=2, pp=2, vpp=2, etp=1, ep=4, dp=2, zero=1, split=3/2/3/4", GPT2)
    assert (run.tp, run.ep, run.etp, run.dp, run.zero) == (2, 4, 1, 2, 1)
    assert (run.schedule, run.boundaries) == ("interleaved", (0, 4, 6, 9, 14))
    assert run_of_degrees("tp=2,etp=2", GPT2).etp is None
    plain = run_of_degrees("pp=4,etp=1", GPT2)
    assert (plain.tp, plain.etp, plain.dp, plain.micro_batch, plain.zero) == (1, None, None, 1, 0)
    assert (plain.schedule, plain.recompute) == ("1f1b", "none")
    assert plain.boundaries == (0, 4, 7, 10, 14)


test_refused = check_refusals("degrees", lambda text: run_of_degrees(text, GPT2))
