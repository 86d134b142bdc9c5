"""Layers measured with PyTorch: their profile loads."""

import sys
from pathlib import Path

import pytest

from formulations.instance.load import load_instance
from tests.command_line import refused, run
from tests.conftest import present, text_of
from tests.refusals import refusals

CONFIG = text_of("measured_model.txt")
INSTANCE = text_of("measured_instance.txt")
REASON = "PyTorch is not installed (extra `torch`)"


def test_profile_of_this_machine_plans(tmp_path: Path) -> None:
    """Times of every layer kind, degree and size with hardware and versions; the instance loads."""
    torch = pytest.importorskip("torch", reason=REASON)
    torch.set_num_threads(1)
    (tmp_path / "config.json").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "measured.yaml").write_text(INSTANCE, encoding="utf-8")
    out, model = tmp_path / "profile.yaml", tmp_path / "config.json"
    where = ("--device", "cpu", "--gpu", "A100-40", "--out", out)
    sizes = ("--tensor-parallel", "1,2", "--micro-batch", "2")
    code, text, _ = run("profile", "--model", model, *where, *sizes)
    assert (code, text.split(":")[0]) == (0, f"wrote {out}")
    written = out.read_text(encoding="utf-8")
    assert "nothing was sent" in written
    assert f"PyTorch {torch.__version__}" in written
    profile = present(load_instance(tmp_path / "measured.yaml").profile)
    assert len(profile.entries) == 3 * 2
    assert all(entry.weight_s is not None for entry in profile.entries)
    longer = INSTANCE.replace("sequence_length: 16", "sequence_length: 8")
    (tmp_path / "other.yaml").write_text(longer, encoding="utf-8")
    assert "times of sequence length 16" in refused("solve", tmp_path / "other.yaml")


@refusals("profiles")
def test_what_cannot_be_measured_is_refused(text: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=REASON)
    out = tmp_path / "profile.yaml"
    assert message in refused("profile", *text.split(), "--out", out)
    assert not out.exists()


def test_without_torch_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    err = refused("profile", "--model", "gpt2", "--out", tmp_path / "profile.yaml")
    assert "hetplan[torch]" in err
