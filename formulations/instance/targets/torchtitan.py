"""torchtitan 0.3: any fixed schedule through `pipeline_parallel_schedule_csv`, and FSDP2.

FSDP2 reduces gradients with every micro-batch where there is one stage; with several it keeps
parameters and gradients whole until the last micro-batch: ZeRO 1. One activation checkpoint mode
holds for all parts; its selective mode keeps other tensors than Megatron-LM's. A tied matrix is
shared only inside one stage (`models/common/decoder.py`), which predicts further tokens, too.

Ranks of FSDP and of tensor groups share experts, which are then whole; experts that all have are
split over tensor groups. The GPUs of a sequence are among FSDP's ranks
(`distributed/parallel_dims.py`, `models/common/moe_sharding.py`).
"""

from collections.abc import Iterator

from formulations.instance.targets.launcher import ALIKE, STACK, Demands, Launcher, Refusal, Rule
from formulations.instance.workload import Workload


def _shared(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """Experts and sequences that GPUs cannot share so."""
    tp, ep, cp, etp = demands.tp, demands.ep, demands.cp, demands.etp
    if tp > 1 and ep > 1 and etp == "tp":
        reason = "which keeps experts whole where several GPUs share them"
        yield Refusal("expert_tensor_parallel", etp, reason)
    elif tp > 1 and ep == 1 and etp == 1:
        reason = "which keeps no experts whole that each GPU has all of"
        yield Refusal("expert_tensor_parallel", etp, reason)
    elif ep > 1 and not demands.sharded:
        yield Refusal("expert_parallel", ep, "which takes FSDP's ranks for experts")
    elif cp > 1 and not demands.sharded:
        reason = "whose FSDP splits states among the GPUs of a sequence too"
        yield Refusal("context_parallel", cp, reason)


TORCHTITAN = Launcher(
    name="torchtitan",
    search={
        **ALIKE,
        "recompute": Rule(("none", "full"), "whose selective mode keeps other tensors"),
        "context_method": Rule(("ring",), "which passes keys and values on, and no heads"),
    },
    workload={
        "optimizer_state": Rule(("fp32",), "whose AdamW keeps moments in 32 bit"),
        "layers": STACK,
        "precision": Rule(("bf16", "fp32"), "whose FSDP2 trains in these"),
        "gradient_precision": Rule(("fp32",), "which reduces gradients in 32 bit"),
    },
    zero_stages=lambda pp: (2, 3) if pp == 1 else (0, 1),
    shared_in_one_stage=True,
    together=_shared,
)
