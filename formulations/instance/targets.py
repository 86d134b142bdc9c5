"""Launch targets: what each framework can run, said once.

Rules about single fields stand in `catalogue/launchers.yaml`, with their sources; what excludes
each other is said here. Whoever adds a decision to `search` adds its rules: what a user states is
checked by them, what he does not state is narrowed by them, and plans are held against them.
DeepSpeed and Accelerate are no targets of a search: they take what they can of the others' plans.
"""

from collections.abc import Iterator
from typing import Any, Literal, get_args

from formulations.instance.documents import resource
from formulations.instance.launcher import Demands, Launcher, Refusal, Rule
from formulations.instance.workload import Workload

#: Who is to run the plans of a search; `any` has no rules, so it is the widest.
Target = Literal["megatron", "flagscale", "torchtitan", "any"]


def shared_experts(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """Experts that Megatron-LM's GPUs cannot share, or split, so."""
    if demands.ep > 1 and workload.precision == "fp16":
        yield Refusal("expert_parallel", demands.ep, "which shares no experts in fp16")
    elif workload.experts and demands.tp > 1 and not demands.splits_sequence:
        reason = "which trains no experts in tensor groups without"
        yield Refusal("sequence_parallel", False, reason)
    elif workload.expert_biases and demands.tp > 1 and demands.etp == "tp":
        yield Refusal("expert_tensor_parallel", "tp", "which splits no experts with biases")


def _fsdp_ranks(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """Experts and sequences that torchtitan's GPUs cannot share so."""
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


def mixed_gradients(workload: Workload) -> bool:
    """Whether gradients are summed in another format than that of the weights."""
    return workload.precision in ("bf16", "fp16") and workload.gradient_bytes == 4


def _whole_layers(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """What DeepSpeed's pipelines, AutoTP and ZeRO do not do together."""
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


def _one_stage(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """What Accelerate's FSDP2 and DDP do not do together."""
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


def _launcher(fields: dict[str, Any]) -> Launcher:
    """What the catalogue says of a framework, and what of that excludes each other."""
    for section in ("search", "workload"):
        rules = fields[section].items()
        fields[section] = {name: Rule(tuple(allowed), reason) for name, (allowed, reason) in rules}
    for name in ("distributed", "free_if_alike"):
        fields[name] = tuple(fields.get(name, ()))
    fields["zero_stages"] = tuple(map(tuple, fields.get("zero_stages", [[0, 1, 2, 3]] * 2)))
    return Launcher(**fields)


_TOGETHER = {
    "megatron": shared_experts,
    "flagscale": shared_experts,
    "torchtitan": _fsdp_ranks,
    "deepspeed": _whole_layers,
    "accelerate": _one_stage,
}
_CATALOGUE: Any = resource("launchers.yaml").value
#: Who can be asked to run a plan.
LAUNCHERS = {
    name: _launcher(fields | {"together": _TOGETHER[name]})
    for name, fields in _CATALOGUE["launchers"].items()
} | {"any": Launcher("any target")}
TARGETS: dict[Target, Launcher] = {name: LAUNCHERS[name] for name in get_args(Target)}


def launchers(field: str, value: object) -> list[Target]:
    """The targets that can run a value of a field, of `search` or a workload; `any` is the last."""
    return [name for name, target in TARGETS.items() if target.allows(field, value)]
