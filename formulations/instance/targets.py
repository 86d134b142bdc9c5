"""Launch targets: what each framework can run, said once.

A rule names one field, the values that the framework can run, and why no others; a field without a
rule is free. Rules about `search` narrow what a user leaves open, and are asked of what he states.
Rules about what is trained no search can change: fields of `workload`, its `layers`, and the
`num_nextn_predict_layers` of a config.json; nor those about `traits` of its model. A clash is a
decision that does not go together with others, and with what is trained: those are asked of
`Demands`. All stand in `catalogue/launchers.yaml`, with their sources.

Whoever adds a decision to `search` adds its rules; plans are held against them. DeepSpeed and
Accelerate are no targets of a search: they take what they can of the others' plans.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from pydantic import TypeAdapter

from formulations.errors import Fault
from formulations.instance.documents import resource
from formulations.instance.record import shown
from formulations.instance.sizes import TransformerSizes
from formulations.instance.workload import ExpertSplit, OptimizerState, Workload

#: Who is to run the plans of a search; `any` has no rules, so it is the widest.
Target = Literal["megatron", "flagscale", "torchtitan", "any"]


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
    """What a configuration asks for, by fields of `search`, that only goes with some of the rest.

    tensor_parallel: GPUs of its widest tensor groups. copied: do several GPUs have the same
    tensors, which ZeRO may split? sequence_parallel: do all tensor groups split the sequence?
    """

    tensor_parallel: int
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    expert_tensor_parallel: ExpertSplit = "tp"
    zero: int = 0
    copied: bool = True
    sequence_parallel: bool = False

    @property
    def sharded(self) -> bool:
        """Whether ZeRO splits states of what several GPUs have, if there is any."""
        return self.zero > 0 or not self.copied


def as_written(value: object) -> str:
    """A value as it stands in an instance."""
    return value if isinstance(value, str) else shown(value)


class Refusal(NamedTuple):
    """A decision that a framework cannot run, and why; instead: what to write, if that is known."""

    field: str
    value: object
    reason: str
    instead: tuple[object, ...] = ()

    def fault(self, target: Target, state: OptimizerState | None = None) -> Fault:
        """What to tell who asks it of this target, and who can run it."""
        able = " or ".join(launchers(self.field, self.value, state))
        allowed = " or ".join(map(as_written, self.instead))
        found = f"{as_written(self.value)}, with the target {TARGETS[target].name}, {self.reason}"
        return Fault(found, f"{allowed}, or search.target: {able}")


class Clash(NamedTuple):
    """A field of `search` that a framework refuses under conditions, and why; instead: as above.

    when: values of facts; lists: any of them.
    """

    field: str
    when: Mapping[str, object]
    reason: str
    instead: tuple[object, ...] = ()


@dataclass(frozen=True)
class Launcher:
    """A framework.

    model: rules about `traits`, for models that it builds itself: those of users are their own.
    if_alike: rules in place of those of `search`, where all stages recompute alike.
    """

    name: str
    search: Mapping[str, Rule] = field(default_factory=dict)
    workload: Mapping[str, Rule] = field(default_factory=dict)
    model: Mapping[str, Rule] = field(default_factory=dict)
    clashes: tuple[Clash, ...] = ()
    if_alike: Mapping[str, Rule] = field(default_factory=dict)

    def rules(
        self, recompute_per: object = "stage", state: OptimizerState | None = None
    ) -> dict[str, Rule]:
        """Those about fields of `search`, by its field `recompute_per` and the optimizer's state.

        What an optimizer's state asks of ZeRO, it asks of all plans.
        """
        rules = {**self.search, **(self.if_alike if recompute_per == "plan" else {})}
        for clash in self.clashes:
            if state is not None and clash.when == {"zero": 0, "optimizer_state": state}:
                rules[clash.field] = Rule(clash.instead, clash.reason)
        return rules

    def kept(self, search: object) -> dict[str, object]:
        """The fields of a `search` that it has rules for, as far as it can run their values."""
        return {name: rule.kept(getattr(search, name)) for name, rule in self.search.items()}

    def allows(self, name: str, value: object, state: OptimizerState | None = None) -> bool:
        """Whether it can run a value of a field of `search`, or train one of a workload."""
        rule = self.rules(state=state).get(name, self.workload.get(name))
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
        return outside(self.workload, trained)

    def unbuilt(self, sizes: TransformerSizes) -> Iterator[Refusal]:
        """What of a model it has no options for."""
        return outside(self.model, traits(sizes))

    def most_stages(self, workload: Workload) -> int | None:
        """Pipeline stages that it can run at most; None: any number."""
        refusals = self.refused(workload, Demands(1, pipeline_parallel=2))
        return 1 if any(refusal.field == "pipeline_parallel" for refusal in refusals) else None

    def refused(self, workload: Workload, demands: Demands) -> Iterator[Refusal]:
        """What of a configuration does not go together, beside rules about single fields."""
        degrees = zip(demands._fields[:4], demands[:4], strict=True)  # those of groups of GPUs
        facts: dict[str, object] = {
            **demands._asdict(),
            **{name: "several" if degree > 1 else "one" for name, degree in degrees},
            "sharded": demands.sharded,
            "shared_vocabulary": workload.tied_embeddings or workload.mtp_layers > 0,
            "experts": workload.experts > 0,
            "expert_biases": workload.expert_biases,
            "precision": workload.precision,
            "optimizer_state": workload.optimizer_state,
            "mixed_gradients": mixed_gradients(workload),
        }
        for clash in self.clashes:
            if all(facts[name] in listed(values) for name, values in clash.when.items()):
                value = getattr(demands, clash.field)
                yield Refusal(clash.field, value, clash.reason, clash.instead)


def listed(value: object) -> tuple[object, ...]:
    """The values of a choice among several; of a single one itself."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def outside(rules: Mapping[str, Rule], chosen: Mapping[str, object]) -> Iterator[Refusal]:
    """The values, one or several for each field, that its rule does not allow.

    Free are fields without a value, or with None: one that is open, or not known.
    """
    for name, rule in rules.items():
        for value in listed(chosen.get(name)):
            if value is not None and value not in rule.allowed:
                yield Refusal(name, value, rule.reason, rule.allowed)


#: Activations by what frameworks call them; gelu by whichever approximation.
_ACTIVATIONS = {"swish": "silu", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu2": "relu^2"}
#: Of scalings of rotary positions, what frameworks take for given: Llama 3.1, DeepSeek-V2.
PUBLISHED: dict[str, dict[str, float]] = {
    "llama3": {
        "low_freq_factor": 1,
        "high_freq_factor": 4,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {"beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 4096},
}


def traits(sizes: TransformerSizes) -> dict[str, object]:
    """What `catalogue/launchers.yaml` has rules about: sizes, and kinds of parts in words.

    None: not known. Biases of the feed-forward network are those of experts where all blocks have.
    """
    moe, scaling = sizes.moe, sizes.rotary_scaling
    activation = sizes.activation and _ACTIVATIONS.get(sizes.activation, sizes.activation)
    of_ffn = moe.biases if moe and not moe.dense_first_layers else sizes.ffn_biases
    biases = {"qkv": sizes.qkv_biases, "output": sizes.output_bias, "network": of_ffn}
    stretched = str(scaling["rope_type"]) if scaling else "none"
    if scaling and any(scaling.get(key, n) != n for key, n in PUBLISHED.get(stretched, {}).items()):
        stretched += " of other lengths"
    parts = [
        *["latent"] * (sizes.latent_attention is not None),
        *["windows"] * (sizes.window is not None),
        *["sinks"] * sizes.attention_sinks,
    ]
    learned = "none" if sizes.learned_positions is None else "learned"
    return {
        **dict(sizes),
        "attention": " and ".join(parts) or "plain",
        "positions": "rotary" if sizes.rotary_positions else learned,
        "activation": activation and "gated " * sizes.gated_ffn + activation,
        "biases": " and ".join(name for name, there in biases.items() if there) or "none",
        "rotary_scaling": stretched,
    }


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


def mixed_gradients(workload: Workload) -> bool:
    """Whether gradients are summed in another format than that of the weights."""
    return workload.precision in ("bf16", "fp16") and workload.gradient_bytes == 4


_CATALOGUE: Any = resource("launchers.yaml").value
#: Who can be asked to run a plan.
LAUNCHERS = {
    **TypeAdapter(dict[str, Launcher]).validate_python(_CATALOGUE["launchers"]),
    "any": Launcher("any target"),
}
TARGETS: dict[Target, Launcher] = {name: LAUNCHERS[name] for name in get_args(Target)}


def launchers(field: str, value: object, state: OptimizerState | None = None) -> list[Target]:
    """The targets that can run a value of a field, of `search` or a workload; `any` is the last."""
    return [name for name, target in TARGETS.items() if target.allows(field, value, state)]
