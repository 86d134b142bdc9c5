"""Exported schedules under torch.distributed.pipelining on CPU processes (gloo)."""

import csv
import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from solver.export import torchtitan
from solver.export.job import Job
from tests.export_cases import CHUNK_CUTS, UNTIED, job_of

torch = pytest.importorskip("torch", reason="torch is not installed (extra `launch`)")
pytestmark = pytest.mark.launch

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    "1f1b": job_of(workload=UNTIED),
    "uneven 9|1": job_of(
        workload=UNTIED, pp=2, dp=4, cuts=(0, 11, 14), shares=(2,) * 4, order=(0, 1, 1)
    ),
    "gpipe": job_of(workload=UNTIED, schedule="gpipe"),
    "interleaved": job_of(workload=UNTIED, cuts=CHUNK_CUTS, schedule="interleaved", vpp=2),
    "zb-h1": job_of(workload=UNTIED, schedule="zb-h1"),
}


def run(job: Job, folder: Path) -> list[tuple[list[str], dict[str, Any]]]:
    """Operations in order and gradients of every rank of one replica."""
    schedule = folder / "schedule.csv"
    schedule.write_text(torchtitan.files(job)[torchtitan.SCHEDULE])
    fields = {
        "blocks": job.num_blocks,
        "parts": [torchtitan.modules(piece) for piece in job.pieces],
        "ranks": job.config.pp,
        "micro_batches": job.micro_batches,
        "schedule": str(schedule),
        "folder": str(folder),
    }
    (folder / "job.json").write_text(json.dumps(fields))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(job.config.pp),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "tests.launch.pipeline_worker", str(folder / "job.json")]
    ranks = range(job.config.pp)
    workers = [
        subprocess.Popen(
            command, env={**common, "RANK": str(r)}, cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for r in ranks
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers), errors[-1][-2000:]
    return [
        (
            json.loads((folder / f"{r}.json").read_text()),
            torch.load(folder / f"{r}.pt", weights_only=True),
        )
        for r in ranks
    ]


@pytest.mark.parametrize("name", CASES)
def test_exported_schedule_gives_the_gradients_of_one_process(name: str, tmp_path: Path) -> None:
    """Every weight has its gradient on one rank, and operations run in the planned order."""
    from tests.launch.tiny_model import Tiny, batch, loss_of

    job = CASES[name]
    model = Tiny(job.num_blocks)
    tokens, targets = batch(job.micro_batches)
    loss_of(model(tokens), targets).backward()
    wanted = {name: weight.grad for name, weight in model.named_parameters()}
    found: dict[str, Any] = {}
    rows = csv.reader(io.StringIO(torchtitan.files(job)[torchtitan.SCHEDULE]))
    for (log, gradients), row in zip(run(job, tmp_path), rows, strict=True):
        assert log == row
        assert not set(found) & set(gradients)
        found |= gradients
    assert set(found) == set(wanted)
    for key, gradient in wanted.items():
        assert torch.allclose(found[key], gradient, atol=1e-5), key
