"""What launch targets run, said again: the fields of a plan space must be such.

Megatron-LM: one recomputation, 1F1B or interleaved, equally many micro-batches, optimizer states
split or not. FlagScale: 1F1B without chunks, equally many micro-batches, stages with blocks; full
recomputation, and degrees, may differ from stage to stage. torchtitan: one recomputation, none or
full, equally many micro-batches. All of them: embedding, blocks, head. Moments of Adam in 8 bit are
for none of them. Rules that depend on the degrees of a plan are those of `formulations.launch`.
"""

from collections.abc import Callable, Sequence

from formulations.instance.search import SearchSpace
from formulations.instance.target import Target
from formulations.instance.workload import Workload
from solver.document import PlanDocument
from solver.verify.findings import Findings

Holds = Callable[[SearchSpace], bool]


def _schedules(*names: str) -> Holds:
    return lambda search: set(search.schedule) <= set(names)


def _uniform(search: SearchSpace) -> bool:
    return search.degrees == "uniform"


def _even(search: SearchSpace) -> bool:
    return search.micro_batches == "even"


def _alike(search: SearchSpace) -> bool:
    return search.recompute_per == "plan"


def _all_or_nothing(search: SearchSpace) -> bool:
    return "selective" not in search.recompute


def _ring(search: SearchSpace) -> bool:
    return search.context_method == "ring" or set(search.context_parallel) == {1}


def _zero_1(search: SearchSpace) -> bool:
    return max(search.zero) <= 1


#: Field of `search`, and whether it holds only what the target runs.
_RUNS: dict[Target, Sequence[tuple[str, Holds]]] = {
    "megatron": (
        ("degrees", _uniform),
        ("schedule", _schedules("1f1b", "interleaved")),
        ("micro_batches", _even),
        ("recompute_per", _alike),
        ("zero", _zero_1),
    ),
    "flagscale": (
        ("schedule", _schedules("1f1b")),
        ("micro_batches", _even),
        ("recompute", lambda search: _alike(search) or _all_or_nothing(search)),
        ("zero", _zero_1),
        ("embedding_only_stages", lambda search: not search.embedding_only_stages),
        ("context_parallel", lambda search: set(search.context_parallel) == {1}),
    ),
    "torchtitan": (
        ("degrees", _uniform),
        ("micro_batches", _even),
        ("recompute_per", _alike),
        ("recompute", _all_or_nothing),
        ("context_method", _ring),
    ),
    "any": (),
}


#: Adam's bytes per parameter beside a master copy, and per block of them.
_IN_32_BIT, _IN_16_BIT = (8, 0), (4, 0)


def _moments(workload: Workload) -> tuple[int, int]:
    copy = 0 if workload.precision in ("fp32", "tf32") else 4
    return workload.optimizer_bytes - copy, workload.optimizer_block_bytes


def trains(target: Target, workload: Workload) -> str | None:
    """What of a workload a target cannot train, None if nothing."""
    layers = [run.layer for run in workload.layer_runs]
    blocks = [layer.is_block for layer in layers]
    if target == "any":
        return None
    if len({layer.kind for layer in layers} & {"encoder", "decoder"}) > 1:
        return "two stacks of blocks"
    if blocks[0] or blocks[-1] or not all(blocks[1:-1]):
        return "other layers than embedding, blocks, head"
    if workload.optimizer_block_bytes:
        return "moments in 8 bit"
    if target == "flagscale" and workload.mtp_layers:
        return "multi-token prediction"
    if target != "torchtitan":
        return None
    if _moments(workload) == _IN_16_BIT:
        return "moments in 16 bit"
    if workload.gradient_bytes < 4:
        return "gradients in 16 bit"
    plain = workload.precision in ("bf16", "fp32")
    return None if plain else f"products in {workload.precision}"


def check_target(document: PlanDocument, findings: Findings) -> None:
    """The target that the document names is its instance's, whose plan space it can run.

    That the plan is of that space is checked elsewhere.
    """
    search = document.instance.search
    findings.equal("target", document.target, search.target)
    odd = trains(search.target, document.instance.workload)
    text = f"what the target {search.target} trains"
    findings.require(odd is None, "instance.workload", odd, text)
    for field, holds in _RUNS[search.target]:
        found, expected = getattr(search, field), f"what the target {search.target} runs"
        findings.require(holds(search), f"instance.search.{field}", found, expected)
