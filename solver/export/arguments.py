"""Argument files of Megatron-LM and its forks: one flag a line, with its values."""

from collections.abc import Sequence

from solver.export.job import Job

Arguments = list[tuple[str, ...]]

_PRECISION: dict[str, Arguments] = {
    "bf16": [("--bf16",)],
    "fp16": [("--fp16",)],
    "fp8": [("--bf16",), ("--fp8-format", "hybrid")],
}


def argument_file(head: Sequence[str], arguments: Arguments) -> str:
    """The text of a file: remarks, then arguments."""
    lines = [f"# {line}" for line in head] + [" ".join(words) for words in arguments]
    return "".join(f"{line}\n" for line in lines)


def read_arguments(text: str) -> dict[str, list[str]]:
    """Flags of an argument file with their values; remarks are left out."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {words[0]: words[1:] for words in lines}


def batch_arguments(job: Job, micro_batch: int) -> Arguments:
    """What the plan was made for, and its batch sizes; micro_batch: sequences of the first rank."""
    workload = job.instance.workload
    mtp: Arguments = [("--mtp-num-layers", str(job.num_mtp))] if job.num_mtp else []
    return [
        ("--num-layers", str(job.num_blocks)),
        *mtp,
        ("--seq-length", str(workload.sequence_length)),
        ("--micro-batch-size", str(micro_batch)),
        ("--global-batch-size", str(workload.global_batch)),
    ]


def precision_arguments(job: Job) -> Arguments:
    """Precision of products and gradients, and attention without stored scores."""
    workload = job.instance.workload
    found = list(_PRECISION.get(workload.precision, []))
    if workload.gradient_bytes == 4:
        found.append(("--accumulate-allreduce-grads-in-fp32",))
    elif workload.precision != "fp16":
        found.append(("--grad-reduce-in-bf16",))
    if workload.flash_attention:
        found.append(("--attention-backend", "flash"))
    return found
