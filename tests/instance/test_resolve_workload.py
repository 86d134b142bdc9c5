"""Promises of formulations.instance.resolve_workload: a model by name, by its file or sizes."""

from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance.huggingface import sizes_from_config
from formulations.instance.load import load_instance
from formulations.instance.resolve_workload import config_name, from_config
from tests.instance_texts import MINIMAL, parsed


def workload_text(workload: str) -> str:
    """The minimal instance with another section."""
    return MINIMAL.replace("{catalogue: bert-large}", workload)


def test_huggingface_config_is_found_beside_the_instance(tmp_path: Path) -> None:
    """The path is relative to the instance file; 12 layers of GPT-2 make 14 with both ends."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    workload = "{huggingface: model/config.json, sequence_length: 1024, global_batch: 8}"
    file = tmp_path / "x.yaml"
    file.write_text(workload_text(workload), encoding="utf-8")
    found = load_instance(file).workload
    assert (found.name, len(found.layers), found.parameters) == ("model", 14, 124_439_808)


def test_what_is_written_goes_before_the_catalogue() -> None:
    """Length, batch, name, source and formats; without them the entry's own."""
    text = "{catalogue: bert-large, sequence_length: 128, global_batch: 8, name: n, source: s}"
    workload = parsed(workload_text(text)).workload
    assert (workload.sequence_length, workload.global_batch) == (128, 8)
    assert (workload.name, workload.source) == ("n", "s")
    plain = parsed(MINIMAL).workload
    assert (plain.sequence_length, plain.global_batch, plain.name) == (512, 256, "bert-large")
    formats = "{catalogue: bert-large, gradient_precision: bf16, optimizer_state: 8bit}"
    trained = parsed(workload_text(formats) + "search: {target: any}\n").workload
    assert (trained.gradient_bytes, trained.optimizer_state) == (2, "8bit")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"[" * 100_000, "config.json:1:1: "),
        (b'{"n_layer": ' + b"9" * 5000 + b"}", "config.json:1:1: "),
        (b'{"model_type": "\xff"}', "config.json:1:17: byte 0xff; "),
    ],
)
def test_odd_config_gives_one_line(data: bytes, line: str, tmp_path: Path) -> None:
    """A config.json that no JSON parser takes is named in one line, without a place to refer to."""
    file = tmp_path / "config.json"
    file.write_bytes(data)
    with pytest.raises(InstanceError) as caught:
        from_config(file, sizes_from_config)
    assert str(caught.value).startswith(f"{tmp_path}/{line}")
    assert str(caught.value).isprintable()


def test_models_are_called_by_their_file_or_its_folder() -> None:
    """config.json says nothing of the model."""
    assert config_name(Path("/m/llama/config.json")) == "llama"
    assert config_name(Path("/m/llama.json")) == "llama"
