"""What launch targets run, said again: the plan space must be such.

Megatron-LM: one recomputation, 1F1B or interleaved, equally many micro-batches, optimizer states
split or not. FlagScale: 1F1B without chunks, equally many micro-batches, stages with blocks; full
recomputation, and degrees, may differ from stage to stage. torchtitan: one recomputation, none or
full, equally many micro-batches; FSDP's ZeRO 2 and 3 with one stage.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from formulations.instance import Instance
from formulations.instance.instance import SearchSpace
from formulations.instance.target import Target
from formulations.plan import Degrees
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
    ),
    "any": (),
}


def runs_zero(target: Target, zero: int, pp: int) -> bool:
    """Whether a target runs a ZeRO stage in several replicas of so many stages."""
    if target == "torchtitan":
        return (zero >= 2) == (pp == 1)
    return target == "any" or zero <= 1


def runs_degrees(
    instance: Instance, degrees: Sequence[Degrees], nodes_used: Sequence[int], dp: int, pp: int
) -> bool:
    """Whether the target runs degrees of node groups in whatever order their nodes stand.

    Only FlagScale limits them: a stage whose GPUs share it otherwise than those of other stages
    must not lie on several nodes, and tensor groups of two sizes are not for tied embeddings of
    several stages, nor without sequence parallelism.
    """
    known = zip(instance.cluster.groups, degrees, nodes_used, strict=True)
    used = [(group.gpus_per_node, own) for group, own, count in known if count]
    if instance.search.target != "flagscale" or all(own == used[0][1] for _, own in used):
        return True
    several = any(own.tp != used[0][1].tp for _, own in used)
    tied = pp > 1 and instance.workload.tied_embeddings
    if several and (tied or not instance.search.sequence_parallel):
        return False
    return not any(gpus % (own.width * dp) for gpus, own in used)


def runs_parts(target: Target, parts: Iterable[int], zero: int) -> bool:
    """Whether ZeRO 1 of FlagScale can split states: of two numbers of parts one divides another."""
    pairs = combinations(set(parts), 2)
    return target != "flagscale" or not zero or not any(max(p) % min(p) for p in pairs)


def check_target(document: PlanDocument, findings: Findings) -> None:
    """The target that the document names is its instance's, whose plan space it can run.

    That the plan is of that space is checked elsewhere.
    """
    search = document.instance.search
    findings.equal("target", document.target, search.target)
    for field, holds in _RUNS[search.target]:
        found, expected = getattr(search, field), f"what the target {search.target} runs"
        findings.require(holds(search), f"instance.search.{field}", found, expected)
