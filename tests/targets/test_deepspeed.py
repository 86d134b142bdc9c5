"""DeepSpeed: fields that exclude each other, each just inside and just outside."""

from typing import Any

import pytest

from tests.targets.test_launcher import PLAIN, refused


@pytest.mark.parametrize(
    ("demands", "fields"),
    [
        ({"tp": 2, "pp": 2, "zero": 1}, ["tensor_parallel"]),
        ({"tp": 2, "zero": 1}, []),
        ({"tp": 2, "zero": 1, "splits_sequence": True}, ["sequence_parallel"]),
        ({"tp": 1, "zero": 1, "splits_sequence": True}, []),
        ({"tp": 2, "zero": 2}, []),
        ({"tp": 2, "zero": 3}, ["zero"]),
        ({"tp": 1, "zero": 3}, []),
        ({"zero": 0}, ["zero"]),  # gradients in fp32 of weights in bf16
        ({"zero": 0, "copied": False}, []),
    ],
)
def test_fields_that_go_together(demands: dict[str, Any], fields: list[str]) -> None:
    """Pipelines split no layer; gradients of another format go with ZeRO."""
    assert refused("deepspeed", **demands) == fields


def test_gradients_in_the_format_of_the_weights_need_no_zero() -> None:
    """All in fp32, or all in 16 bit."""
    assert refused("deepspeed", PLAIN.but(precision="fp32"), zero=0) == []
    assert refused("deepspeed", PLAIN.but(gradient_bytes=2), zero=0) == []
