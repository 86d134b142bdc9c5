"""Promises of formulations.instance.sizes."""

import pytest
from pydantic import ValidationError

from formulations.instance.sizes import TransformerSizes, WindowSizes
from tests.architectures import GPT2, MIXTRAL, T5_SMALL

MOE = {"experts": 4, "experts_per_token": 2, "ffn_size": 8}
LATENT = {"kv_rank": 8, "nope_head_dim": 8, "rope_head_dim": 8, "value_head_dim": 8}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_heads": 5}, "kv_heads 5 do not divide heads 12"),
        ({"hidden_size": 10**8}, "less than or equal to 10000000"),
        ({"rotary_positions": True}, "more than one of learned_positions"),
        ({"moe": MOE | {"experts_per_token": 5}}, "5, above experts 4"),
        ({"moe": MOE | {"dense_first_layers": 13}}, "dense_first_layers is 13, above layers 12"),
        ({"head_dim": 64, "latent_attention": LATENT}, "latent_attention excludes"),
        ({"decoder_layers": 2, "moe": MOE}, "an encoder-decoder has neither"),
        ({"window": {"tokens": 4, "layers": [12]}}, "window.layers are not all from 0 to 11"),
        ({"decoder_layers": 2, "mtp_layers": 1}, "neither window nor mtp_layers"),
    ],
)
def test_sizes_that_do_not_fit(change: dict[str, object], message: str) -> None:
    """Sizes that do not fit together or are out of range are refused."""
    with pytest.raises(ValidationError, match=message):
        TransformerSizes.model_validate(GPT2.model_dump() | change)


def test_what_is_left_out_follows_from_the_rest() -> None:
    """GPT-2's conventions: 768 = 12 heads of 64, a network of 4 h; T5 has two streams."""
    assert (GPT2.num_kv_heads, GPT2.width_per_head, GPT2.dense_ffn_size) == (12, 64, 3072)
    assert (GPT2.causal, GPT2.num_streams, GPT2.num_experts) == (True, 1, 0)
    assert (T5_SMALL.causal, T5_SMALL.num_streams) == (False, 2)
    assert not GPT2.but(token_types=2).causal
    assert (MIXTRAL.num_experts, MIXTRAL.num_kv_heads) == (8, 8)
    some_blocks = WindowSizes(tokens=4, layers=[0, 2])
    assert [some_blocks.covers(block) for block in range(3)] == [True, False, True]
    assert WindowSizes(tokens=4).covers(7)
