"""Accelerate 1.15, which takes plans of other targets: those of one stage.

FSDP2 reduces gradients with every micro-batch only where `sync_each_batch` is set; then it is
ZeRO 2, and 3 where parameters are dropped after the forward pass. Without sharding it is DDP,
for which there is no `ParallelismConfig`.
"""

from collections.abc import Iterator

from formulations.instance.targets.launcher import ALIKE, STACK, Demands, Launcher, Refusal, Rule
from formulations.instance.workload import Workload


def _unsupported(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    tp, zero = demands.tp, demands.zero
    if demands.pp > 1:
        yield Refusal("pipeline_parallel", demands.pp, "which has no pipelines", (1,))
    if zero == 1 and demands.copied:
        yield Refusal("zero", zero, "whose FSDP2 splits gradients too", ([0, 2, 3],))
    if tp > 1 and demands.copied and not zero:
        yield Refusal("zero", zero, "whose tensor groups go with sharded parameters", ([2, 3],))
    if tp > 1 and demands.splits_sequence:
        reason = "whose tensor groups have whole sequences"
        yield Refusal("sequence_parallel", True, reason, ("false",))


ACCELERATE = Launcher(
    name="Accelerate",
    search={
        **ALIKE,
        "context_parallel": Rule((1,), "whose context parallelism asks for sharded parameters"),
        "expert_parallel": Rule((1,), "which places no experts"),
        "expert_tensor_parallel": Rule(("tp",), "which places no experts"),
        "recompute": Rule(("none", "full"), "which recomputes blocks as a whole"),
    },
    workload={
        "layers": STACK,
        "optimizer_state": Rule(("fp32",), "whose Adam keeps moments in 32 bit"),
    },
    together=_unsupported,
)
