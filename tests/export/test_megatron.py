"""Megatron-LM's arguments: what they say is the plan."""

import pytest

from formulations.errors import PlannerError
from formulations.plan import Degrees
from solver.export import megatron
from solver.export.job import Job
from solver.export.megatron import read_arguments
from solver.export.registry import EXPORTERS
from tests.export_cases import (
    CHUNKS,
    ONE_STAGE,
    UNTIED,
    WHOLE_EXPERTS,
    instance_of,
    job_of,
    plan_of,
    recomputing,
)

UNEVEN = job_of()
ALONE = "target: any, embedding_only_stages: true"


def arguments(job: Job) -> dict[str, list[str]]:
    """Flags of the job's argument file."""
    return read_arguments(megatron.files(job)[megatron.ARGUMENTS])


@pytest.mark.parametrize(
    ("job", "layout"),
    [
        (UNEVEN, "Et*3|t*3|t*2|t*4L"),
        (CHUNKS, "Et|t*2|t|t*2|t|t|t*2|t*2L"),
        (
            job_of("target: any, embedding_only_stages: true", cuts=(0, 1, 7, 9, 14)),
            "E|t*6|t*2|t*4L",
        ),
    ],
)
def test_layout_has_the_layers_of_the_plan(job: Job, layout: str) -> None:
    """Head, tail and uneven pieces, chunk by chunk."""
    assert arguments(job)[megatron.LAYOUT] == [layout]


def test_predicted_tokens_stand_before_the_loss() -> None:
    """Modules of multi-token prediction are in the plan's head; Megatron-LM wants their number."""
    job = job_of(workload=f"{UNTIED.removesuffix('}, sequence_length: 1024')}, {MTP}")
    assert arguments(job)[megatron.LAYOUT] == ["Et*3|t*3|t*2|t*4mL"]
    assert arguments(job)["--mtp-num-layers"] == ["1"]
    EXPORTERS["megatron"].check(job, megatron.files(job))


MTP = "mtp_layers: 1}, sequence_length: 1024"


def test_arguments_of_a_plan() -> None:
    """Degrees, batches and strategies; nothing that a layout excludes."""
    found = arguments(job_of(tp=2, dp=1, shares=(8,), order=(0, 1, 1)))
    assert found["--tensor-model-parallel-size"] == ["2"]
    assert (found["--num-layers"], found["--seq-length"]) == (["12"], ["1024"])
    assert (found["--micro-batch-size"], found["--global-batch-size"]) == (["2"], ["16"])
    assert {"--sequence-parallel", "--bf16", "--use-distributed-optimizer"} <= set(found)
    assert not [flag for flag in found if "virtual" in flag or "first-pipeline" in flag]
    assert megatron.LAYOUT not in arguments(job_of(**ONE_STAGE))


@pytest.mark.parametrize(
    ("numbers", "method"),
    [
        ((3, 3, 2, 4), ["uniform", "1"]),
        ((2, 2, 2, 2), ["block", "2"]),
        ((3, 3, 2, 3), ["block", "3"]),
        ((0, 0, 0, 0), None),
    ],
)
def test_recomputation_alike_on_all_ranks(
    numbers: tuple[int, ...], method: list[str] | None
) -> None:
    """Whole stages, or the first n blocks of each: where a stage has no more, all of it."""
    job = recomputing(UNEVEN, numbers)
    assert EXPORTERS["megatron"].faults(job) == []
    found = arguments(job)
    flags = ("--recompute-method", "--recompute-num-layers")
    told = [found[flag][0] for flag in flags] if "--recompute-granularity" in found else None
    assert told == method


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (recomputing(UNEVEN, (3, 0, 0, 0)), "recompute_per: stage is not for Megatron-LM"),
        (
            job_of(workload="catalogue: t5-3b", cuts=(0, 12, 24, 36, 50)),
            "layers: an encoder and a decoder is not",
        ),
    ],
)
def test_what_megatron_cannot_express(job: Job, line: str) -> None:
    """Each is refused with what to write instead."""
    fault = EXPORTERS["megatron"].faults(job)[0]
    assert line in fault.found
    assert "solve again" in fault.change or "one stack" in fault.change


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (megatron.ARGUMENTS, "t*3|t*3", "t*4|t*2"),
        (megatron.ARGUMENTS, "--global-batch-size 16", "--global-batch-size 8"),
        (megatron.ARGUMENTS, "--num-layers 12", "--num-layers 13"),
        ("ranks.csv", "2,small-0", "2,big-0"),
        ("hosts.txt", "small-0\nbig-0", "big-0\nsmall-0"),
        ("torchrun.sh", "--nproc-per-node 4", "--nproc-per-node 2"),
    ],
)
def test_file_that_is_not_the_plan_is_found(file: str, old: str, new: str) -> None:
    """What is read back is held against the plan, file by file."""
    job = UNEVEN
    texts = megatron.files(job)
    assert old in texts[file] or file == "ranks.csv"
    changed = {**texts, file: texts[file].replace(old, new) if old in texts[file] else "\n"}
    with pytest.raises(PlannerError, match="read back"):
        EXPORTERS["megatron"].check(job, changed)


@pytest.mark.parametrize(("tp", "line"), [(1, False), (2, True)])
def test_bug_megatron_ended_jobs_with_tensor_groups_at_start(tp: int, line: bool) -> None:
    """Before Blackwell it asserts that kernels are queued in one order."""
    job = job_of(workload=UNTIED, tp=tp, dp=1, shares=(8,), order=(0, 1, 1), cuts=(0, 4, 7, 9, 14))
    assert ("CUDA_DEVICE_MAX_CONNECTIONS" in megatron.files(job)["torchrun.sh"]) == line


@pytest.mark.parametrize(
    ("precision", "search", "tp", "found"),
    [
        ("bf16", "sequence_parallel: true", 2, []),
        ("bf16", "sequence_parallel: false", 1, []),
        ("fp16", "sequence_parallel: true", 2, ["expert_parallel: 2 is"]),
        (
            "bf16",
            "sequence_parallel: false",
            2,
            ["sequence_parallel: false is"],
        ),
    ],
)
def test_bug_megatron_ended_jobs_with_experts_at_start(
    precision: str, search: str, tp: int, found: list[str]
) -> None:
    """Experts in fp16, and in tensor groups without sequence parallelism."""
    workload = f"catalogue: mixtral-8x7b, sequence_length: 512, precision: {precision}"
    instance = instance_of(workload, f"target: any, expert_parallel: 4, {search}")
    degrees = (Degrees(tp=tp),) * 2
    dp = 4 // tp
    shares = (16 // (2 * dp),) * dp
    plan = plan_of(instance, (0, 17, 34), dp=dp, pp=2, ep=dp, degrees=degrees, shares=shares)
    lines = [fault.found for fault in EXPORTERS["megatron"].faults(Job(instance, plan))]
    assert len(lines) == len(found)
    assert all(line.startswith(start) for line, start in zip(lines, found, strict=True))


def test_experts_and_sequences_that_gpus_share() -> None:
    """Degrees of both, how attention sees a sequence, and ranks of one sequence in a row."""
    workload = "catalogue: mixtral-8x7b, sequence_length: 512"
    search = "target: any, context_parallel: 2, context_method: ring, expert_parallel: 4"
    instance = instance_of(workload, search)
    degrees = (Degrees(tp=1, cp=2),) * 2
    job = Job(instance, plan_of(instance, (0, 17, 34), dp=2, pp=2, ep=4, degrees=degrees))
    texts = megatron.files(job)
    EXPORTERS["megatron"].check(job, texts)
    found = read_arguments(texts[megatron.ARGUMENTS])
    assert found["--context-parallel-size"] == ["2"]
    assert found["--cp-comm-type"] == ["p2p"]
    assert found["--expert-model-parallel-size"] == ["4"]
    assert [one.data for one in job.ranks] == [0, 1, 2, 3] * 2


def test_bug_megatron_ended_jobs_that_split_experts_with_biases() -> None:
    """Its assertion on gpt-oss: there tensor groups have whole experts."""
    instance = WHOLE_EXPERTS.instance
    instance = instance.but(workload={"expert_biases": True})
    split = plan_of(instance, (0, 17, 34), tp=2, pp=2, ep=2)
    (fault,) = EXPORTERS["megatron"].faults(Job(instance, split))
    assert fault.found.startswith("expert_tensor_parallel: tp is not for Megatron-LM")
    assert list(EXPORTERS["megatron"].faults(Job(instance, WHOLE_EXPERTS.plan))) == []


def test_experts_that_tensor_groups_do_not_split() -> None:
    """One GPU per expert, which four share; else tp of them."""
    found = arguments(WHOLE_EXPERTS)
    assert found["--expert-model-parallel-size"] == ["4"]
    assert found["--expert-tensor-parallel-size"] == ["1"]
    assert found["--tensor-model-parallel-size"] == ["2"]
    assert EXPORTERS["megatron"].faults(WHOLE_EXPERTS) == []
