"""Megatron-LM, core 0.20 (August 2026): any layers per stage, all else alike on all ranks.

Sources: `arguments.py`, `pipeline_parallel/schedules.py`; of experts `validate_args`, which shares
none in fp16, `transformer/moe/moe_layer.py` (core 0.16), which trains none in tensor groups without
sequence parallelism, and `transformer_config.py`, which splits none with biases. The
precision-aware optimizer, which keeps moments in bf16, is distributed.
"""

from collections.abc import Iterator

from formulations.instance.targets.launcher import ALIKE, STACK, Demands, Launcher, Refusal, Rule
from formulations.instance.workload import Workload

STATES = Rule((0, 1), "whose distributed optimizer splits optimizer states alone")
WORKLOAD = {
    "optimizer_state": Rule(("fp32", "bf16"), "which keeps no moments in 8 bit"),
    "layers": STACK,
}


def shared_experts(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """Experts that GPUs cannot share, or split, so."""
    if demands.ep > 1 and workload.precision == "fp16":
        yield Refusal("expert_parallel", demands.ep, "which shares no experts in fp16")
    elif workload.experts and demands.tp > 1 and not demands.splits_sequence:
        reason = "which trains no experts in tensor groups without"
        yield Refusal("sequence_parallel", False, reason)
    elif workload.expert_biases and demands.tp > 1 and demands.etp == "tp":
        yield Refusal("expert_tensor_parallel", "tp", "which splits no experts with biases")


MEGATRON = Launcher(
    name="Megatron-LM",
    search={
        **ALIKE,
        "schedule": Rule(("1f1b", "interleaved"), "which has no such schedule"),
        "zero": STATES,
    },
    workload=WORKLOAD,
    zero_stages=lambda pp: (0, 1),
    distributed=("bf16",),
    together=shared_experts,
)
