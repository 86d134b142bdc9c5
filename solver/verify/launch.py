"""What launch targets run, said again: the plan space must be such.

Megatron-LM: one recomputation, 1F1B or interleaved, equally many micro-batches, optimizer states
split or not. FlagScale: 1F1B without chunks, equally many micro-batches, stages with blocks; full
recomputation, and degrees, may differ from stage to stage. torchtitan: one recomputation, none or
full, equally many micro-batches; FSDP's ZeRO 2 and 3 with one stage; experts that are shared are
whole, on ranks of FSDP, to which those of a sequence belong, and of tensor groups, others are split
by these. The first two share no experts in fp16, train none in tensor groups without sequence
parallelism, and split none with biases. All of them: embedding, blocks, head. Moments of Adam in 8
bit are for none of them, in bf16 for the distributed optimizer of the first two.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from formulations.instance import Instance
from formulations.instance.instance import SearchSpace
from formulations.instance.target import Target
from formulations.instance.workload import Workload
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


def runs_states(target: Target, zero: int, workload: Workload) -> bool:
    """Whether a target keeps states of the workload's format with a ZeRO stage."""
    core = target in ("megatron", "flagscale")
    return zero > 0 or not core or _moments(workload) != _IN_16_BIT


def runs_sharing(
    target: Target,
    instance: Instance,
    degrees: Iterable[Degrees],
    ep: int,
    etp: int | None,
    zero: int,
) -> bool:
    """Whether a target lets GPUs share experts and sequences so."""
    own, workload = list(degrees), instance.workload
    wide = any(one.tp > 1 for one in own)
    if target in ("megatron", "flagscale"):
        torn = workload.experts > 0 and wide and not instance.search.sequence_parallel
        torn |= workload.expert_biases and wide and etp is None
        return not torn and (ep == 1 or workload.precision != "fp16")
    alone = ep == 1 and all(one.cp == 1 for one in own)
    whole = (ep > 1) == (etp is not None) or not wide
    return target != "torchtitan" or (whole and (alone or zero > 0))


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


def runs_stage(instance: Instance, zero: int, first: Degrees, own: Degrees, last: bool) -> bool:
    """Whether the target runs a stage with degrees of its own behind a first one with others.

    Of FlagScale's, the first and the last hold tied embeddings, and split states of these.
    """
    target, search = instance.search.target, instance.search
    if target != "flagscale" or own == first:
        return runs_sharing(target, instance, [own], 1, None, zero)
    tied = last and instance.workload.tied_embeddings
    alike = first.tp == own.tp or (search.sequence_parallel and not tied)
    parts = runs_parts(target, [first.parts, own.parts], zero) or not last
    return alike and parts and runs_sharing(target, instance, [own], 1, None, zero)


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
