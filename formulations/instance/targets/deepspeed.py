"""DeepSpeed 0.19, which takes plans of other targets: pipelines of 1F1B with ZeRO 0 or 1.

Pipelines split no layer; tensor parallelism (AutoTP) is for one stage, without sequence
parallelism. Gradients of another format than the weights end a job at start without ZeRO
(`engine.py`, "unsupported mix"); of one replica ZeRO 1 splits nothing, so it stands in for 0.
"""

from collections.abc import Iterator

from formulations.instance.targets.launcher import ALIKE, STACK, Demands, Launcher, Refusal, Rule
from formulations.instance.workload import Workload


def mixed_gradients(workload: Workload) -> bool:
    """Whether gradients are summed in another format than that of the weights."""
    return workload.precision in ("bf16", "fp16") and workload.gradient_bytes == 4


def _unsupported(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    tp, zero = demands.tp, demands.zero
    if tp > 1 and demands.pp > 1:
        yield Refusal("tensor_parallel", tp, "whose pipelines split no layer", (1,))
    if tp > 1 and demands.splits_sequence:
        reason = "whose AutoTP leaves sequences whole"
        yield Refusal("sequence_parallel", True, reason, ("false",))
    if tp > 1 and zero > 2:
        yield Refusal("zero", zero, "whose AutoTP leaves parameters whole", (0, 1, 2))
    if mixed_gradients(workload) and not zero and demands.copied:
        yield Refusal("zero", zero, "which sums no gradients in fp32 without", (1,))


DEEPSPEED = Launcher(
    name="DeepSpeed",
    search={
        **ALIKE,
        "context_parallel": Rule((1,), "whose pipelines take whole sequences"),
        "expert_parallel": Rule((1,), "whose experts are not written here"),
        "expert_tensor_parallel": Rule(("tp",), "whose experts are not written here"),
        "schedule": Rule(("1f1b",), "whose pipelines run 1F1B"),
        "recompute": Rule(("none", "full"), "which recomputes layers as a whole"),
    },
    workload={
        "optimizer_state": Rule(("fp32",), "whose Adam keeps moments in 32 bit"),
        "layers": STACK,
        "precision": Rule(("bf16", "fp16", "fp32", "tf32"), "which has no fp8 of its own"),
    },
    together=_unsupported,
)
