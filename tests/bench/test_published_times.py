"""How observations predict their times, on figures worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from bench.published_times import LayerTime, StepTime, gpt
from formulations.costs.compute import Passes
from formulations.instance import Layer, Link

ENDLESS = Link(bandwidth_bytes_per_s=1e18, latency_s=0)
SLOW = Link(bandwidth_bytes_per_s=8, latency_s=0.5)
#: h 2, 1 head, 1 block, 1 token, vocabulary 128: the block has 12 h^2 + 13 h = 74 parameters,
#: the embedding 128 h + 1 h = 258.
TINY = gpt(2, 1, 1, 1, 128)
FOUR_BLOCKS = gpt(2, 1, 4, 1, 128)


def seconds_by_kind(layer: Layer, tp: int, micro_batch: int) -> Passes:
    """Forward seconds: embedding 0.5, block 1, head 2; backward twice as many."""
    forward_s = {"embedding": 0.5, "block": 1.0, "head": 2.0}[layer.kind]
    return Passes(forward_s, 2 * forward_s)


def step(**changes: Any) -> StepTime:
    """Two stages of two blocks, three micro-batches, nothing but computation."""
    base = StepTime(
        workload=FOUR_BLOCKS,
        tp=1,
        dp=1,
        pp=2,
        micro_batch=1,
        num_micro_batches=3,
        chunks=1,
        gpus_per_node=8,
        intra_node=ENDLESS,
        inter_node=ENDLESS,
        memory_bandwidth_bytes_per_s=1e18,
    )
    return replace(base, **changes)


@pytest.mark.parametrize(("tp", "backward", "time_s"), [(2, False, 5), (2, True, 6), (1, False, 1)])
def test_passes_pay_two_all_reduces(tp: int, backward: bool, time_s: float) -> None:
    """Ring over 2: 8 bytes at 8 bytes/s and 2 steps of 0.5 s are 2 s; 1 + 2 * 2 = 5, back 2 + 4."""
    time = LayerTime(TINY.layers[1], tp, 1, backward, message_bytes=8, link=SLOW)
    assert time.predicted_s(seconds_by_kind) == time_s


def test_step_is_bound_by_its_slowest_stage() -> None:
    """Blocks 4 * 1 s, others 3 * theirs: stages of 9.5 and 14 s; 3 * 14 + 9.5 = 51.5.

    With two chunks the other stage's 9.5 s shrink to half: 42 + 4.75.
    """
    assert step().predicted_s(seconds_by_kind) == pytest.approx(51.5)
    assert step(chunks=2).predicted_s(seconds_by_kind) == pytest.approx(46.75)


def test_rings_that_leave_the_node_share_its_link() -> None:
    """Half of the sharded parameters at tp 2, but both rings use the one link of the node.

    Block: 12 h^2 + 7 h = 62 sharded (3 h + 4 h biases), 6 h = 12 replicated: 43 per GPU.
    Embedding: 256 rows after padding, 256 of 512 parameters, and 2 replicated: 258.
    2 bytes * 301 * 2 rings / 8 bytes/s = 150.5 s.
    """
    rings = step(workload=TINY, tp=2, dp=2, pp=1, gpus_per_node=2, inter_node=SLOW)
    assert rings.predicted_s(lambda *_: Passes(0.0, 0.0)) == pytest.approx(150.5)
