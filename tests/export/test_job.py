"""A plan as launchers see it: ranks, hosts, pieces, names."""

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from formulations.errors import PlanError
from solver.evaluate.run_plan import order_beside
from solver.export import megatron
from solver.export.job import HOSTS, Job, host_names, name_clash
from solver.export.registry import EXPORTERS
from tests.export.read_back import check_files
from tests.export.stored import check_exports
from tests.export_cases import JOBS, instance_of, job_of
from tests.small_instances import with_groups

test_ranks_and_pieces_are_as_stored = check_exports("megatron")
test_modules_and_sums_are_as_stored = check_exports("torchtitan")


def test_hosts_have_names_of_their_own() -> None:
    """Numbered within their group; groups whose names become one word clash."""
    cluster = instance_of().cluster
    assert host_names(cluster) == (("big-0",), ("small-0",), ("small-1",))
    assert name_clash(cluster) is None
    groups = (cluster.groups[0].but(name="a b"), cluster.groups[1].but(name="a-b"))
    assert "the node groups a b and a-b" in (name_clash(cluster.but(groups=groups)) or "")


test_scripts_are_as_stored = check_exports("accelerate")
UNEVEN = job_of()


def named(*names: str) -> Job:
    """The job on node groups of these names: a node of the first, two of the second."""
    job = job_of()
    return replace(job, instance=with_groups(job.instance, name=[*names]))


@pytest.mark.parametrize("names", [("gpu a", "gpu-a"), ("日本", "中国"), ("a!", "a")])
def test_bug_two_node_groups_became_the_same_hosts(names: tuple[str, str], tmp_path: Path) -> None:
    """No target takes such a plan, and no hosts file is read by such names."""
    job = named(*names)
    for exporter in EXPORTERS.values():
        clashes = [fault.found for fault in exporter.faults(job) if "alike" in fault.found]
        assert [f"{names[0]} and {names[1]}, " in text for text in clashes] == [True]
    (tmp_path / HOSTS).write_text("a-0\n", encoding="utf-8")
    with pytest.raises(PlanError, match="named alike; allowed: names that differ in ASCII"):
        order_beside(job.instance, tmp_path)


def test_bug_a_host_was_named_like_the_place_of_another() -> None:
    """A group without an ASCII letter; before, its nodes were 0 and 1, in places 0 and 2."""
    job = named("ok", "中国")
    check_files("megatron", job, megatron.files(job))
    assert megatron.files(job)[HOSTS].split() == ["plan-0", "ok-0", "plan-1"]


def started(folder: Path, job: Job, host: str, **environment: str) -> list[str]:
    """What torchrun is called with on a host: the words, after the GPUs that it sees."""
    for name, text in megatron.files(job).items():
        (folder / name).write_text(text)
    fake = folder / "bin" / "torchrun"
    fake.parent.mkdir()
    fake.write_text('#!/bin/bash\nprintf "%s\\n" "$CUDA_VISIBLE_DEVICES" "$@"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    path = {"PATH": f"{fake.parent}:{os.environ['PATH']}", **environment}
    command = ["bash", str(folder / "torchrun.sh"), host, "pretrain_gpt.py", "--vocab-file", "a b"]
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.splitlines()


@pytest.mark.parametrize("host", ["big-0", "1"])
def test_script_starts_the_processes_of_a_host(host: str, tmp_path: Path) -> None:
    """By name or place; the layout is not expanded by the shell, and words stay whole."""
    words = started(tmp_path, UNEVEN, host, MASTER_ADDR="10.0.0.1")
    assert words[0] == "0,1,2,3"
    expected = "--nnodes 3 --node-rank 1 --nproc-per-node 4 --master-addr 10.0.0.1"
    assert " ".join(words[1:9]) == expected
    assert words[11] == "pretrain_gpt.py"
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Et*3|t*3|t*2|t*4L"
    assert words[-2:] == ["--vocab-file", "a b"]


@pytest.mark.parametrize(("name", "told"), [("tf32", True), ("fp32", False)])
def test_bug_tf32_plans_ran_in_fp32(name: str, told: bool) -> None:
    """PyTorch takes tf32 for products only where it is told."""
    text = megatron.files(JOBS[name])["torchrun.sh"]
    assert ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1" in text) == told
