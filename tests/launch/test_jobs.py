"""Exported jobs of a tiny model train by their command, three steps on CPU processes (gloo).

Layers lie on ranks as planned; losses and norms of gradients are those of one process. What asks
for a GPU is replaced by `on_cpu`. Untried is what CPUs cannot do: of torchtitan with Gloo
`all_to_all_single` of unequal parts (shared experts) and gathering of what is not contiguous
(tensor groups); of Accelerate `ParallelismConfig`, which refuses MULTI_CPU (sharded parameters); of
Megatron-LM context parallelism, whose attention is Transformer Engine's; all of Megatron-Bridge
and FlagScale, whose files are parsed alone.
"""

import importlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formulations.instance.workload import padded_vocabulary
from solver.export.job import Job
from solver.export.megatron import START
from solver.export.registry import EXPORTERS, exported
from solver.options import ExportTarget
from tests.export_cases import instance_of, plan_of
from tests.launch.on_cpu import ON_CPU
from tests.launch.test_parsers import needed

pytestmark = pytest.mark.launch

#: A Llama of six blocks.
TINY = (
    "sizes: {hidden_size: 64, layers: 6, heads: 4, kv_heads: 2, ffn_size: 128, gated_ffn: true,"
    " activation: silu, norm: rmsnorm, norm_epsilon: 1.0e-5, rotary_positions: true,"
    " rotary_base: 10000, vocabulary_size: 250, tied_embeddings: false, qkv_biases: false,"
    " output_bias: false, ffn_biases: false, dropout: false}, sequence_length: 32, precision: fp32"
)


def tiny(
    workload: str = TINY, search: str = "target: any, sequence_parallel: false", **plan: Any
) -> Job:
    """On four GPUs of a node: the cluster's A100."""
    instance = instance_of(workload, search)
    return Job(instance, plan_of(instance, nodes_used=(1, 0), order=(0,), **plan))


ALONE = tiny(pp=1, dp=1, cuts=(0, 8), shares=(8,), zero=0)
CASES = {
    "uneven": tiny(pp=4, dp=1, cuts=(0, 3, 4, 6, 8), shares=(8,), zero=0),
    "interleaved": tiny(
        pp=2, dp=1, cuts=(0, 2, 3, 6, 8), shares=(8,), zero=0, schedule="interleaved", vpp=2
    ),
    "zero bubble": tiny(pp=2, dp=1, cuts=(0, 4, 8), shares=(8,), zero=0, schedule="zb-h1"),
    "two replicas": tiny(pp=2, dp=2, cuts=(0, 3, 8), shares=(4, 4), zero=1, way="full"),
}
#: Of one stage.
SPLIT = tiny(pp=1, dp=2, cuts=(0, 8), shares=(4, 4), zero=3)
COPIED = tiny(pp=1, dp=2, cuts=(0, 8), shares=(4, 4), zero=0)
IN_PAIRS = tiny(pp=1, dp=1, tp=2, cuts=(0, 8), shares=(8,), zero=0)


def started(target: ExportTarget, job: Job, folder: Path, *arguments: str, script: str = "") -> str:
    """What a job prints, started as its README says; script: what that says to fill in."""
    folder.mkdir()
    for name, text in exported(job.instance, job.plan, target, "plan.json").items():
        (folder / name).write_text(text)
    (command,) = re.findall(r"^bash torchrun.sh HOST .*$", (folder / "README.md").read_text(), re.M)
    (folder / "sitecustomize.py").write_text(ON_CPU[target])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    told |= {"PATH": path, "PYTHONPATH": str(folder), "DS_ACCELERATOR": "cpu"}
    told["ACCELERATE_USE_CPU"] = "true"
    words = [*command.replace("HOST", "0").replace(START, script).split(), *arguments]
    done = subprocess.run(
        words, cwd=folder, env=os.environ | told, capture_output=True, text=True, check=False
    )
    printed = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, printed[-9000:]
    return printed


def megatron_figures(printed: str) -> list[list[float]]:
    """Of every step the loss and the norm of gradients."""
    rows = re.findall(r"lm loss: (\S+) .*grad norm: (\S+)", printed)
    return [[float(figure) for figure in row] for row in rows]


def figures(printed: str) -> list[list[float]]:
    """Step, loss, and of torchtitan the norm of gradients, of ranks that know them."""
    pattern = r"step: +(\d+) +loss: +(\d\S*)(?: +grad_norm: +(\d\S*))?"
    rows = sorted(set(re.findall(pattern, printed)))
    return [[float(figure) for figure in row if figure] for row in rows]


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options of torchtitan to start with the weights of one process."""
    needed("torchtitan.models.qwen3")
    if not hasattr(needed("torch.distributed"), "set_timeout"):
        pytest.skip("torchtitan 0.3 trains with torch 2.14 and later")
    folder = tmp_path_factory.mktemp("seed") / "job"
    options = ["--training.steps", "3", "--checkpoint.enable"]
    started("torchtitan", ALONE, folder, *options, "--checkpoint.create_seed_checkpoint")
    written = folder / "outputs" / "checkpoint" / "step-0"
    return [*options, "--checkpoint.initial_load_path", str(written)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, seed: list[str]) -> list[list[float]]:
    """Losses of one process."""
    printed = started("torchtitan", ALONE, tmp_path_factory.mktemp("alone") / "job", *seed)
    return figures(printed)


@pytest.mark.parametrize("name", CASES)
def test_torchtitan_trains_as_one_process(
    name: str, tmp_path: Path, seed: list[str], alone: list[list[float]]
) -> None:
    job = CASES[name]
    printed = started("torchtitan", job, tmp_path / "job", *seed)
    assert np.array(figures(printed)) == pytest.approx(np.array(alone), abs=2e-4)
    assert len(alone) == 3
    lines = re.findall(r"PP rank (\d) is building stage_idx (\d) with modules (.*)", printed)
    stages = {
        int(stage): (int(rank), re.findall(r"\w*layers.\d", text)) for rank, stage, text in lines
    }
    assert stages == {
        k: (k % job.config.pp, [f"layers.{i}" for i in piece.blocks])
        for k, piece in enumerate(job.pieces)
    }


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """Losses of one process of DeepSpeed, which trains the library's own model."""
    needed("deepspeed.pipe")
    needed("transformers")
    folder = tmp_path_factory.mktemp("single") / "job"
    return figures(started("deepspeed", ALONE, folder, "--steps", "3"))


@pytest.mark.parametrize(
    ("target", "job"),
    [
        pytest.param("deepspeed", CASES["uneven"], id="DeepSpeed, uneven"),
        pytest.param("deepspeed", CASES["two replicas"], id="DeepSpeed, two replicas"),
        pytest.param("deepspeed", SPLIT, id="DeepSpeed, ZeRO 3"),
        pytest.param("deepspeed", IN_PAIRS, id="DeepSpeed, tensor groups"),
        pytest.param("accelerate", COPIED, id="Accelerate"),
    ],
)
def test_bug_jobs_of_deepspeed_ended_at_start(
    target: ExportTarget, job: Job, tmp_path: Path, single: list[list[float]]
) -> None:
    """It counts tensor groups into `train_batch_size`, and recomputed embeddings; now all train."""
    printed = started(target, job, tmp_path / "job", "--steps", "3")
    assert np.array(figures(printed)) == pytest.approx(np.array(single), abs=2e-4)
    assert len(single) == 3


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("torchtitan", "llama3-405b"),
        ("torchtitan", "qwen3-235b-a22b"),
        ("deepspeed", "qwen2-7b"),
        ("deepspeed", "deepseek-v3"),
        ("accelerate", "gpt2"),
    ],
)
def test_bug_some_models_were_not_built(
    target: ExportTarget, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With null for the width of heads, or stretched positions; they have the plan's parameters."""
    torch, titan = needed("torch"), target == "torchtitan"
    needed("torchtitan.models.qwen3" if titan else "transformers")
    workload = f"catalogue: {name}, sequence_length: 512"
    whole = (0, len(instance_of(workload).workload.layers))
    job = tiny(workload, "target: any", pp=1, dp=1, cuts=whole, shares=(8,), zero=0)
    instance = job.instance
    for file, text in EXPORTERS[target].files(job).items():
        (tmp_path / file).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = "planned_model" if titan else "planned_transformer"
    monkeypatch.delitem(sys.modules, module, raising=False)
    written = importlib.import_module(module)
    with torch.device("meta"):
        model = written.recipe().model_spec.model.build() if titan else written.model()
    head = instance.workload.layers[-1]
    padding = padded_vocabulary(head.vocabulary_rows, 1) - head.vocabulary_rows
    padded = padding * head.vocabulary_columns * (1 if head.tied_copy else 2)
    counted = sum(weight.numel() for weight in model.parameters())
    assert counted == instance.workload.parameters + padded


#: Without Transformer Engine, which no CPU runs.
MEGATRON_OPTIONS = """--distributed-backend gloo --transformer-impl local
--no-rope-fusion --no-gradient-accumulation-fusion"""
EXPERTS = "moe: {experts: 4, experts_per_token: 2, ffn_size: 64, scores: softmax}"


def of_experts(**plan: Any) -> Job:
    """The tiny model with experts in place of networks."""
    workload = TINY.replace("dropout: false", f"dropout: false, {EXPERTS}")
    return tiny(workload, "target: any, expert_parallel: 2, sequence_parallel: false", **plan)


#: Tensor groups of two that split the sequence.
IN_SEQUENCE = "target: any, sequence_parallel: true"
SPLITTING = tiny(search=IN_SEQUENCE, pp=2, dp=1, tp=2, cuts=(0, 3, 8), shares=(8,), zero=0)


SINGLE = {
    "dense": ALONE,
    "experts": of_experts(pp=1, dp=1, cuts=(0, 8), shares=(8,), zero=0),
}
JOBS = {
    "uneven": ("dense", CASES["uneven"]),
    "interleaved": ("dense", CASES["interleaved"]),
    "two replicas, recomputed": ("dense", CASES["two replicas"]),
    "sequence parallel": ("dense", SPLITTING),
    "expert parallel": (
        "experts",
        of_experts(pp=2, dp=2, ep=2, cuts=(0, 3, 8), shares=(4, 4), zero=1),
    ),
}


def trained(job: Job, folder: Path, *arguments: str) -> str:
    """What a job prints; skips where there is no Megatron-LM."""
    clone = os.environ.get("HETPLAN_MEGATRON_LM")
    if clone is None:
        pytest.skip("HETPLAN_MEGATRON_LM names no clone of Megatron-LM")
    script = str(Path(clone) / "pretrain_gpt.py")
    return started("megatron", job, folder, *MEGATRON_OPTIONS.split(), *arguments, script=script)


#: Weights to start from, and figures of one process.
Single = tuple[list[str], list[list[float]]]


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Single]:
    """Of a model; weights as options."""

    @cache
    def single_of(model: str) -> Single:
        folder = tmp_path_factory.mktemp(model)
        weights = str(folder / "weights")
        options = ["--save", weights, "--save-interval", "1", "--train-iters", "1"]
        trained(SINGLE[model], folder / "first", *options)
        options = ["--load", weights, "--finetune", "--train-iters", "3"]
        return options, megatron_figures(trained(SINGLE[model], folder / "job", *options))

    return single_of


@pytest.mark.parametrize("name", JOBS)
def test_megatron_trains_as_one_process(
    name: str, tmp_path: Path, in_one_process: Callable[[str], Single]
) -> None:
    model, job = JOBS[name]
    options, alone = in_one_process(model)
    printed = trained(job, tmp_path / "job", *options)
    assert np.array(megatron_figures(printed)) == pytest.approx(np.array(alone), rel=2e-3)
    assert len(alone) == 3
    pattern = r"rank (\d+) builds \((\d), (\w+), \[(.*?)\], (\w+)\)"
    built = {row[:2]: row[2:] for row in re.findall(pattern, printed)}
    assert built == {
        (str(rank.rank), str(k // job.config.pp)): (
            str(piece.embedding),
            ", ".join(map(str, piece.blocks)),
            str(piece.head),
        )
        for rank in job.ranks
        for k, piece in enumerate(job.pieces)
        if k % job.config.pp == rank.stage
    }
