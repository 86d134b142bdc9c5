"""FlagScale: Megatron-LM-FL's process meshes, each with degrees and recomputation of its own.

Sources: `arguments_fs.py`, and Megatron-LM-FL's `parallel_context.py`: tp and dp per process mesh,
a run of ranks that may end inside a node (its own tests have three on one machine), so every mesh
runs equally many micro-batches; `--recompute-*-per-stage-micro-batch` under granularity full; no
virtual pipeline, cp 1. Where all stages recompute alike it does so as Megatron-LM.
"""

from typing import Protocol

from formulations.instance.targets.launcher import ALIKE, Demands, Launcher, Rule
from formulations.instance.targets.megatron import STATES, WORKLOAD, shared_experts
from formulations.instance.workload import Workload

FLAGSCALE = Launcher(
    name="FlagScale",
    search={
        "schedule": Rule(("1f1b",), "whose process meshes run 1F1B without chunks"),
        "micro_batches": ALIKE["micro_batches"],
        "recompute": Rule(("none", "full"), "whose stages differ in full recomputation alone"),
        "zero": STATES,
        "embedding_only_stages": Rule((False,), "which starts no stage without a block"),
        "context_parallel": Rule((1,), "whose process meshes have no context parallelism"),
    },
    workload={
        **WORKLOAD,
        "num_nextn_predict_layers": Rule((0,), "whose layer split counts blocks alone"),
    },
    zero_stages=lambda pp: (0, 1),
    distributed=("bf16",),
    together=shared_experts,
    free_if_alike=("recompute",),
)


class Slot(Protocol):
    """How the GPUs of a slot share a stage, see `formulations.plan.Degrees`."""

    @property
    def tp(self) -> int:
        """GPUs of a tensor group."""

    @property
    def parts(self) -> int:
        """Tensor groups that share a micro-batch."""


def mesh_fault(
    workload: Workload, splits: bool, zero: int, first: Slot, slot: Slot, last: bool
) -> str | None:
    """Why it cannot run a stage in a pipeline that begins with such a one; None if it can.

    splits: do the tensor groups of both split the sequence? last: is it the last stage? Gradients
    of tied embeddings are summed, and states split with ZeRO 1, between the first and the last.
    """
    if slot.tp != first.tp and not splits:
        return "whose unlike tensor groups need sequence_parallel: true"
    if last and slot.tp != first.tp and workload.tied_embeddings:
        return "whose tied embeddings lie on tensor groups of one size"
    few, many = sorted((first.parts, slot.parts))
    if last and zero and many % few:
        return "where with ZeRO 1 parts of first or last stage divide the other's"
    demands = Demands(slot.tp, zero=zero, splits_sequence=splits)
    return next((refusal.reason for refusal in shared_experts(workload, demands)), None)
