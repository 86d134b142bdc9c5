"""The commands `catalogue`, `init` and `profile`: output, and what they refuse in one line."""

import json

import pytest

from solver.cli.setup import DEFAULT_TOKENS
from tests.command_line import output, refused
from tests.conftest import ROOT

CONFIGS = ROOT / "tests" / "data" / "huggingface"


def test_schema_is_json() -> None:
    """The schema parses and describes an object with workload and cluster."""
    properties = json.loads(output("catalogue", "--schema"))["properties"]
    assert {"workload", "cluster"} <= set(properties)


def test_catalogue_lists_gpus_with_sources() -> None:
    """A100-80 has its memory, its peak and a source, in text and as data."""
    out = output("catalogue")
    assert "A100-80" in out
    assert "TFLOP/s" in out
    gpus = json.loads(output("catalogue", "--json"))["gpus"]
    assert gpus["A100-80"]["peak_flops"]["bf16"] == 312e12
    assert gpus["A100-80"]["source"]


def test_workload_takes_length_and_batch() -> None:
    """Half the sequence length halves the head's FLOPs, 2 s h V; the batch is the one asked for."""
    half, whole = (
        json.loads(
            output("catalogue", "bert-large", "--json", "--sequence-length", n, "--global-batch", 7)
        )
        for n in (256, 512)
    )
    assert (half["sequence_length"], whole["sequence_length"]) == (256, 512)
    assert half["global_batch"] == 7
    flops = [fields["layers"][-1]["forward_flops_per_sequence"] for fields in (half, whole)]
    assert flops[1] == 2 * flops[0] > 0


@pytest.mark.parametrize(("name", "tokens"), [("bert-base", 512), ("deepseek-v3", DEFAULT_TOKENS)])
def test_usual_length_of_a_config(name: str, tokens: int) -> None:
    """What it allows, up to 4096 tokens; of one sequence. The file gives the workload its name."""
    fields = json.loads(output("catalogue", CONFIGS / f"{name}.json", "--json"))
    assert (fields["sequence_length"], fields["global_batch"]) == (tokens, 1)
    assert fields["name"] == name


def test_config_errors_have_line_and_column() -> None:
    """`catalogue` tells where in config.json the unusable value stands."""
    err = refused("catalogue", "tests/data/huggingface_value.json")
    line = "tests/data/huggingface_value.json:3:3 n_layer: 0; allowed: a whole number from 1"
    assert err.startswith(f"error: {line}")
