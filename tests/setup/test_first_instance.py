"""`init`: from a model and machines, however they are named, to an instance that solves."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from formulations.errors import PlannerError
from formulations.instance.machines import gpu_catalogue
from solver.cli import app
from solver.setup import first_instance
from solver.setup.first_instance import Machines, Training, instance_text
from tests.conftest import ROOT
from tests.recorded import as_recorded, digest
from tests.refusals import check_refusals, refusal, refusals

DATA = ROOT / "tests" / "data"
KNOWN = tuple(gpu_catalogue())


@refusals("gpu_names")
def test_names_of_drivers_and_of_slurm_are_understood(text: str, message: str) -> None:
    assert first_instance.catalogue_name(text, KNOWN, "here") == message


def test_machines_are_the_recorded_ones() -> None:
    """One node if no number stands before; a network behind the sign @."""
    texts = "4x8xH100", "8xA10", "2x4xRTX-3090@10 Gbit/s"
    figures = {
        text: list(vars(first_instance.parse_machines(text, KNOWN)).values()) for text in texts
    }
    as_recorded("machines_of_init", figures)


@refusals("machines")
def test_other_forms_are_refused(text: str, message: str) -> None:
    told = refusal(lambda: first_instance.parse_machines(text, KNOWN))
    assert told == message.replace("{gpus}", ", ".join(KNOWN))


test_figures_of_no_gpu_are_refused = check_refusals("gpu_figures", first_instance.parse_gpu)


def test_slurm_nodes_that_work_are_counted() -> None:
    """By scontrol and by sinfo: each once, none that is down or drained, none without GPUs."""
    told = [
        first_instance.slurm_machines(DATA / name, KNOWN) for name in ("scontrol.txt", "sinfo.txt")
    ]
    assert told[0] == [Machines(1, 8, "H100"), Machines(1, 4, "RTX-3090")]
    assert told[1] == [Machines(4, 8, "A100-80"), Machines(2, 4, "RTX-3090")]


@refusals("slurm")
def test_bad_slurm_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "nodes.txt"
    path.write_text(f"{text}\n", encoding="utf-8")
    told = refusal(lambda: first_instance.slurm_machines(path, KNOWN))
    assert told == f"{tmp_path}/{message}"


def test_kubernetes_nodes_that_work_are_counted() -> None:
    """By the labels of NVIDIA and of GKE; none that is not ready or cordoned, none without GPUs."""
    assert first_instance.kubernetes_machines(DATA / "kubernetes_nodes.json", KNOWN) == [
        Machines(2, 8, "H100"),
        Machines(1, 4, "L40S"),
        Machines(1, 2, "L4"),
    ]


@refusals("kubernetes")
def test_bad_kubernetes_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(text, encoding="utf-8")
    told = refusal(lambda: first_instance.kubernetes_machines(path, KNOWN))
    assert told == f"{tmp_path}/{message}"


def _driver(names: list[str]) -> SimpleNamespace:
    return SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda i: names[i],
    )


def test_the_machine_at_hand_is_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its driver names the GPUs; two types are refused, and so is a machine without one."""
    monkeypatch.setitem(sys.modules, "pynvml", _driver(["NVIDIA H100 80GB HBM3"] * 8))
    assert first_instance.detected_machines(KNOWN) == Machines(1, 8, "H100")
    for driver, message in (
        (_driver(["NVIDIA A10", "NVIDIA L4"]), "A10 and L4"),
        (_driver([]), "no NVIDIA GPU"),
        (None, "nvidia-ml-py"),
    ):
        monkeypatch.setitem(sys.modules, "pynvml", driver)
        with pytest.raises(PlannerError, match=message):
            first_instance.detected_machines(KNOWN)


def test_questions_are_asked_until_they_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal a mistake is told at once, and what was answered before is kept."""
    answers = iter(["gpt-2", "gpt2", "8xA100", "2x8xA100-80, 4xA10@10 Gbit/s"])
    monkeypatch.setattr("typer.prompt", lambda question: next(answers))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    app(["init", "--out", str(tmp_path / "x.yaml")], standalone_mode=False)
    out, err = capsys.readouterr()
    assert "gpt2 on 2 nodes of 8 A100-80, 1 node of 4 A10" in out
    assert [line.split(":")[1] for line in err.splitlines()] == [" --model", " --nodes"]


GPUS = gpu_catalogue()


def test_text_of_an_instance() -> None:
    """A path from the file's folder; groups of one type are numbered; fp16 where bf16 lacks."""
    machines = [Machines(2, 4, "V100-16"), Machines(1, 4, "V100-16", "40 Gbit/s")]
    model = Path("/m/llama/config.json")
    text = instance_text(Training(model, 128, 8), machines, GPUS, Path("/m/plans"))
    fields = yaml.safe_load(text)
    assert (fields["name"], fields["workload"]["huggingface"]) == ("llama", "../llama/config.json")
    assert fields["workload"]["precision"] == "fp16"
    first, second = fields["cluster"]["groups"]
    assert (first["name"], second["name"]) == ("v100-16", "v100-16-2")
    assert (first["inter_node"], second["inter_node"]) == ("Ethernet 100G", "40 Gbit/s")
    assert "# assumed, as machines of many clouds" in text
    one = instance_text(Training("gpt2", 128, 8), [Machines(1, 8, "H100")], GPUS, Path())
    assert "inter_node" not in yaml.safe_load(one)["cluster"]["groups"][0]
    machines = [Machines(2, 8, "H100"), Machines(2, 4, "H100")]
    whole = instance_text(Training("gpt2", 128, 8), machines, GPUS, Path())
    assert "inter_node: InfiniBand 8x NDR  # assumed, as a DGX H100" in whole
    assert yaml.safe_load(whole)["cluster"]["groups"][1]["inter_node"] == "Ethernet 100G"
    as_recorded("written", {"one": digest(one), "several": digest(text)})
