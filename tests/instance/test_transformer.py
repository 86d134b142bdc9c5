"""Promises of formulations.instance.transformer: the chain of layers, embedding and head."""

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest

from formulations.errors import InstanceError
from formulations.instance.parts import Part
from formulations.instance.transformer import CountedModel, build_workload
from formulations.instance.workload import Layer, Precision
from tests.architectures import GPT2, build, kinds_of_workloads
from tests.oracles.agreement import check_layers, pages_suffice
from tests.recorded import Cases, as_recorded, digest, recorded

#: FLOPs, parameters and all-reduces of every layer, prediction modules among them.
test_chains_are_those_of_the_pages = pages_suffice(*range(40, 64), check=check_layers)


def test_workloads_are_the_recorded_ones() -> None:
    """Every layer and all else of models of every kind, with the parameters published."""
    kinds = kinds_of_workloads()
    figures = {name: [work.parameters, digest(work)] for name, work in kinds.items()}
    as_recorded("transformer", figures)


def test_sequence_longer_than_position_table() -> None:
    build(GPT2, 1024)
    with pytest.raises(InstanceError, match=r"1025 on w with 1024 learned.*1 to 1024"):
        build(GPT2, 1025)


PART = Part(
    sharded_parameters=100,
    replicated_parameters=10,
    forward_flops=120,
    kernels=9,
    sharded_activation_bytes=40,
    replicated_activation_bytes=32,
)
BLOCK = PART + Part(score_columns=16)
MODEL = CountedModel(
    hidden_size=8,
    vocabulary_rows=50,
    vocabulary_columns=8,
    tied_embeddings=False,
    blocks=(BLOCK, BLOCK, PART, BLOCK),
    before=Part(replicated_parameters=24),
    behind=Part(replicated_parameters=8, kernels=1),
    heads=2,
    num_kv_heads=1,
    dropout=False,
    learned_positions=4,
)


def layers(
    model: CountedModel = MODEL, flash: bool = False, precision: Precision = "bf16"
) -> tuple[Layer, ...]:
    """The chain for 4 tokens."""
    fields = {"name": "w", "source": "t", "sequence_length": 4, "global_batch": 8}
    formats = {"flash_attention": flash, "precision": precision}
    return build_workload(model, **fields, **formats).layers  # type: ignore[arg-type]


@recorded("counted")
def test_layers_are_the_recorded_ones() -> Cases:
    """Every field of all layers: with dropout, experts, 32 bit, flash attention, tied matrices."""
    part = PART + Part(expert_parameters=60, expert_flops=80, routed_bytes=32)
    experts, twice = part + Part(score_columns=16), part + PART + Part(score_columns=32)
    models = {
        "plain": MODEL,
        "dropout": replace(MODEL, dropout=True),
        "tied": replace(MODEL, tied_embeddings=True, num_kv_heads=2),
        "experts": replace(MODEL, blocks=(twice, experts), num_experts=4),
    }
    for name, model in models.items():
        for flash, precision in product((False, True), get_args(Precision)):
            chain = digest(layers(model, flash, precision))
            yield f"{name} {flash} {precision}", [chain, model.parameters]
