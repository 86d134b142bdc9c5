"""Promises of formulations.instance.sizes."""

import json

import pytest
from pydantic import ValidationError

from formulations.instance.sizes import TransformerSizes, WindowSizes
from tests.architectures import GPT2, MIXTRAL, T5_SMALL
from tests.refusals import refusals


@refusals("sizes")
def test_sizes_that_do_not_fit(text: str, message: str) -> None:
    """Changes of GPT-2 that do not fit together or are out of range; all experts may be taken."""
    with pytest.raises(ValidationError, match=message):
        TransformerSizes.model_validate(GPT2.model_dump() | json.loads(text))
    moe = {"experts": 4, "experts_per_token": 4, "ffn_size": 8, "dense_first_layers": 12}
    TransformerSizes.model_validate(GPT2.model_dump() | {"moe": moe})


def test_what_is_left_out_follows_from_the_rest() -> None:
    """GPT-2's conventions: 768 = 12 heads of 64, a network of 4 h; T5 has two streams."""
    assert (GPT2.num_kv_heads, GPT2.width_per_head, GPT2.dense_ffn_size) == (12, 64, 3072)
    assert (GPT2.causal, GPT2.num_streams, GPT2.num_experts) == (True, 1, 0)
    assert (T5_SMALL.causal, T5_SMALL.num_streams) == (False, 2)
    assert not GPT2.but(token_types=2).causal
    assert (MIXTRAL.num_experts, MIXTRAL.num_kv_heads) == (8, 8)
    several = WindowSizes(tokens=4, layers=[0, 2])
    assert [several.covers(block) for block in range(3)] == [True, False, True]
    assert WindowSizes(tokens=4).covers(7)
