"""Launch targets: what each framework can run, said once.

A rule names one field, the values that the framework can run, and why no others; a field without a
rule is free. Rules about `search` narrow what a user leaves open, and are asked of what he states.
Rules about what is trained no search can change: fields of `workload`, its `layers`, and the
`num_nextn_predict_layers` of a config.json. They stand in `catalogue/launchers.yaml`, with their
sources. What depends on several decisions at once is asked of `Demands`, and said here.

Whoever adds a decision to `search` adds its rules; plans are held against them. DeepSpeed and
Accelerate are no targets of a search: they take what they can of the others' plans.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from pydantic import TypeAdapter

from formulations.instance.documents import resource
from formulations.instance.workload import ExpertSplit, OptimizerState, Workload


class Rule(NamedTuple):
    """Values of a field that a framework can run, as they are written, and why no others."""

    allowed: tuple[object, ...]
    reason: str

    def kept(self, value: object) -> object:
        """What of a choice, or of several, can be run; the first value that can where none."""
        if isinstance(value, list | tuple):
            possible = [choice for choice in value if choice in self.allowed]
            return type(value)(possible or self.allowed[:1])
        return value if value in self.allowed else self.allowed[0]


class Demands(NamedTuple):
    """What a configuration asks for that only goes together with some of the rest.

    tp: GPUs of its widest tensor groups. copied: do several GPUs have the same tensors, which ZeRO
    may split? splits_sequence: do all of its tensor groups?
    """

    tp: int
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: ExpertSplit = "tp"
    zero: int = 0
    copied: bool = True
    splits_sequence: bool = False

    @property
    def sharded(self) -> bool:
        """Whether ZeRO splits states of what several GPUs have, if there is any."""
        return self.zero > 0 or not self.copied


class Refusal(NamedTuple):
    """A decision that a framework cannot run, and why; instead: what to write, if that is known."""

    field: str
    value: object
    reason: str
    instead: tuple[object, ...] = ()


@dataclass(frozen=True)
class Launcher:
    """A framework.

    zero_stages: those that it runs of what several GPUs have, with one pipeline stage and several.
    distributed: formats of optimizer states that it keeps with ZeRO alone. shared_in_one_stage:
    does it need one stage where embedding and head have one matrix, or several heads? together:
    what else it refuses. if_alike: rules in place of those, where all stages recompute alike.
    """

    name: str
    search: Mapping[str, Rule] = field(default_factory=dict)
    workload: Mapping[str, Rule] = field(default_factory=dict)
    zero_stages: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3),) * 2
    distributed: tuple[OptimizerState, ...] = ()
    shared_in_one_stage: bool = False
    together: Callable[[Workload, Demands], Iterator[Refusal]] = lambda workload, demands: iter(())
    if_alike: Mapping[str, Rule] = field(default_factory=dict)

    def rules(self, recompute_per: object) -> dict[str, Rule]:
        """Those about fields of `search`, by the value of its field `recompute_per`."""
        return {**self.search, **(self.if_alike if recompute_per == "plan" else {})}

    def kept(self, search: object) -> dict[str, object]:
        """The fields of a `search` that it has rules for, as far as it can run their values."""
        return {name: rule.kept(getattr(search, name)) for name, rule in self.search.items()}

    def allows(self, name: str, value: object) -> bool:
        """Whether it can run a value of a field of `search`, or train one of a workload."""
        rule = self.search.get(name, self.workload.get(name))
        return rule is None or value in rule.allowed

    def untrained(self, workload: Workload) -> Iterator[Refusal]:
        """What of a workload it cannot train; a state of no known format is nobody's business."""
        trained = {
            "optimizer_state": workload.optimizer_state,
            "layers": chain_of(workload),
            "num_nextn_predict_layers": workload.mtp_layers,
            "precision": workload.precision,
            "fused_cross_entropy": str(workload.fused_cross_entropy).lower(),
            "gradient_precision": "fp32" if workload.gradient_bytes == 4 else "16 bit",
        }
        for name, value in trained.items():
            if value is not None and not self.allows(name, value):
                rule = self.workload[name]
                yield Refusal(name, value, rule.reason, rule.allowed)

    def most_stages(self, workload: Workload) -> int | None:
        """Pipeline stages that it can run at most; None: any number."""
        shared = workload.tied_embeddings or workload.mtp_layers
        return 1 if shared and self.shared_in_one_stage else None

    def refused(self, workload: Workload, demands: Demands) -> Iterator[Refusal]:
        """What of a configuration does not go together, beside rules about single fields."""
        zero, stages = demands.zero, self.zero_stages[demands.pp > 1]
        if not zero and workload.optimizer_state in self.distributed:
            yield Refusal("zero", zero, "whose optimizer with states in bf16 is distributed")
        elif demands.copied and zero not in stages:
            words = " and ".join(map(str, stages))
            count = "one stage" if demands.pp == 1 else "several stages"
            yield Refusal("zero", zero, f"which runs {words} with {count}", stages)
        yield from self.together(workload, demands)
        if demands.pp > (self.most_stages(workload) or demands.pp):
            kept = "tied embeddings" if workload.tied_embeddings else "multi-token prediction"
            yield Refusal("pipeline_parallel", demands.pp, f"which keeps {kept} in one stage", (1,))


ONE_STACK = "one stack of blocks"


def chain_of(workload: Workload) -> str:
    """The chain of layers in words."""
    layers = [run.layer for run in workload.layer_runs]
    if {"encoder", "decoder"} <= {layer.kind for layer in layers}:
        return "an encoder and a decoder"
    ends, inner = (layers[0], layers[-1]), layers[1:-1]
    if any(layer.is_block for layer in ends) or not all(layer.is_block for layer in inner):
        return "a chain that is not embedding, blocks, head"
    return ONE_STACK


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


_TOGETHER = {
    "megatron": shared_experts,
    "flagscale": shared_experts,
    "torchtitan": _fsdp_ranks,
    "deepspeed": _whole_layers,
    "accelerate": _one_stage,
}
_CATALOGUE: Any = resource("launchers.yaml").value
_WRITTEN = TypeAdapter(dict[str, Launcher]).validate_python(_CATALOGUE["launchers"])
#: Who can be asked to run a plan.
LAUNCHERS = {
    name: replace(launcher, together=_TOGETHER[name]) for name, launcher in _WRITTEN.items()
} | {"any": Launcher("any target")}
TARGETS: dict[Target, Launcher] = {name: LAUNCHERS[name] for name in get_args(Target)}


def launchers(field: str, value: object) -> list[Target]:
    """The targets that can run a value of a field, of `search` or a workload; `any` is the last."""
    return [name for name, target in TARGETS.items() if target.allows(field, value)]
