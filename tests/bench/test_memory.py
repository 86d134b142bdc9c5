"""Memory beside published figures: measured, of another model, of Megatron-LM's estimator."""

from pathlib import Path

import pytest

from bench.megatron_memory import Estimator
from bench.memory import MemoryRow, measured_on_b200, megatron_estimates, recompute_2022

#: Megatron-LM's GPT-3 175B block, its estimator's arguments.
GPT_3 = {
    "num_layers": 96,
    "hidden_size": 12288,
    "num_attention_heads": 96,
    "num_query_groups": 96,
    "ffn_hidden_size": 4 * 12288,
    "swiglu": False,
    "normalization": "LayerNorm",
    "seq_length": 2048,
    "padded_vocab_size": 51200,
    "untie_embeddings_and_output_weights": False,
    "num_experts": None,
}


def test_megatron_estimator_is_reproduced(reference: Path) -> None:
    """All 57 figures of Megatron-LM's estimator, to the byte but for float noise."""
    rows = list(megatron_estimates(reference))
    assert len(rows) == 3 * 19
    for row in rows:
        assert row.ours_bytes == pytest.approx(row.published_bytes, rel=1e-12), row


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_blocks_of_a_gpt_keep_what_the_estimator_counts(tp: int) -> None:
    """Of our own block: s h 34 / t split, s h (10 + 24 / t) whole, without the scores."""
    _, block, _ = Estimator(GPT_3).layers
    one = 2048 * 12288
    assert block.recomputed_bytes("selective", tp, sequence_parallel=True)[0] == 34 * one // tp
    whole, _ = block.recomputed_bytes("selective", tp, sequence_parallel=False)
    assert whole == 10 * one + 24 * one // tp


def test_parts_of_korthikanti_et_al(reference: Path) -> None:
    """Figure 1's bytes of the 22B and 175B models, with and without the savings of the paper."""
    known = list(recompute_2022(reference))
    for part, most in (("parameters and optimizer", 0.02), ("activations", 0.03)):
        rows = [row for row in known if row.part == part]
        assert len(rows) == 4
        assert all(abs(row.error) <= most for row in rows)


@pytest.mark.slow
def test_measured_memory_on_b200(reference: Path) -> None:
    """Within 3 % of 22 measured runs, 6 with experts and 4 with sequences that GPUs share."""
    rows: list[MemoryRow] = list(measured_on_b200(reference))
    assert len(rows) == 22
    for row in rows:
        assert abs(row.error) <= 0.03, row
        assert row.other_error is not None
        assert abs(row.other_error) <= 0.014, row
