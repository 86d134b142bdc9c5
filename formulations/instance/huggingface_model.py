"""Causal language models of Hugging Face transformers, built on the meta device to be counted.

The library builds the model of a `config.json` without memory for its weights. This needs the
optional extra `transformers`; nothing is downloaded, and no code but the library's is run.

Counted are its vocabulary matrices, its stack of blocks, and what stands around it, every parameter
once. A parameter of two or more dimensions is a product of its size per token, unless it is a table
that is looked up; experts (a parameter with one entry per expert, or a list of modules) are
products by the share of them that a token visits.
"""

import dataclasses
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from formulations.errors import InstanceError
from formulations.instance.huggingface import CAUSAL_NAMES, Config, model_types, sizes_from_config
from formulations.instance.parts import ROTARY_KERNELS, Part, memory_kernels, product
from formulations.instance.record import shown
from formulations.instance.transformer import Architecture, CountedModel
from formulations.units import ceil_div

# What classes outside of this project raise for configs that they cannot build.
_REFUSALS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError)
_BAD_VALUES = (RuntimeError, TypeError, ValueError)
_MOST = 10**9
_MOST_MODULES = 10**4
_MODULE_WORDS = ("layer", "expert", "block", "depth")
_PREDICTION = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")


def architecture_from_config(config: Config) -> Architecture:
    """Sizes of a model of a supported type, and counts of any other that the library has."""
    return counted_from_config(config) if _is_counted(config) else sizes_from_config(config)


def _is_counted(config: Config) -> bool:
    """Whether the library is installed and has the model type, and the table has not."""
    model_type = config.fields.get("model_type")
    if not isinstance(model_type, str) or model_type in model_types():
        return False
    if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
        return False
    from transformers import CONFIG_MAPPING

    return model_type in CONFIG_MAPPING


def maximum_positions(config: Config) -> int | None:
    """Longest sequence that the config states, or None. Raises as `sizes_from_config`."""
    if _is_counted(config):
        longest = config.fields.get("max_position_embeddings")
        return longest if type(longest) is int and longest > 0 else None
    for key in ("n_positions", "max_position_embeddings"):
        if key in config.type.defaults:
            return None if config.value(key) is None else config.integer(key, least=1)
    return None


def counted_from_config(config: Config) -> CountedModel:
    """The counted model of a parsed `config.json` of a known type.

    Raises InstanceError for values that the library refuses, fields that its class does not have
    and that may describe another model, and models that are no single stack of blocks.
    """
    fields = config.fields
    _check_sizes(config, fields)
    for key in _PREDICTION:
        if fields.get(key):
            problem = f"{shown(fields[key])}, modules that the library's model leaves out"
            raise config.error(key, problem, "0, to train without them")
    model, declared = _counted(config)
    # Some fields that a class does not declare its model reads: without them, or with twice the
    # number, it has other parameters.
    for key in config.foreign_fields(declared):
        changed = {name: value for name, value in fields.items() if name != key}
        if type(fields[key]) is int:
            changed[key] = 2 * fields[key]
        if model.parameters == _counted(replace(config, fields=changed))[0].parameters:
            raise config.foreign(key)
    return model


def _check_sizes(config: Config, fields: Mapping[str, object]) -> None:
    """Bounds, in nested objects too, on what the library builds: each module takes time."""
    for key, value in fields.items():
        if isinstance(value, dict):
            _check_sizes(config, value)
        largest = _MOST_MODULES if any(word in key for word in _MODULE_WORDS) else _MOST
        if isinstance(value, int) and abs(value) > largest:
            raise config.error(key, shown(value), f"at most {largest}")


def _counted(config: Config) -> tuple[CountedModel, set[str]]:
    """The model that the library builds, and the fields that its configuration class declares.

    On the meta device: of the architecture named, else the causal language model.
    """
    import torch
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    def refused(error: Exception) -> InstanceError:
        lines = [line.strip() for line in str(error).splitlines()]
        problem = f"transformers cannot build it: {' '.join(filter(None, lines))[:200]}"
        return config.error(None, problem, "a causal language model that the library can build")

    transformers.logging.set_verbosity_error()
    model_type, name = config.fields["model_type"], config.architecture
    values = {key: value for key, value in config.fields.items() if key != "model_type"}
    try:
        built: Any = transformers.AutoConfig.for_model(model_type, **values)
    except (*_REFUSALS, *_BAD_VALUES, StrictDataclassError) as error:
        raise refused(error) from error
    architecture: Any = name and getattr(transformers, name, None)
    fits = getattr(architecture, "config_class", None) is type(built)
    text_config = built.get_text_config()
    if built.is_encoder_decoder or not (fits or text_config is built):
        allowed = "a language model of one stack of blocks, without encoder or other towers"
        raise config.error("model_type", repr(model_type), allowed)
    if name and not fits and not name.endswith(CAUSAL_NAMES):
        allowed = f"a model of the library, or a name that ends in {' or '.join(CAUSAL_NAMES)}"
        raise config.error("architectures", name, allowed)
    try:
        with torch.device("meta"):
            build = architecture if fits else transformers.AutoModelForCausalLM.from_config
            network = build(built)
    except (*_REFUSALS, *_BAD_VALUES) as error:
        raise refused(error) from error
    declared = {*(field.name for field in dataclasses.fields(type(built))), *built.attribute_map}
    return counted_model(network, text_config, config), declared


_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_VISITED = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts")
_ONE_EXPERT = re.compile(r"(^|\.)experts\.\d+\.")
_RESIDUAL_ADDS = 2


def counted_model(network: Any, built: Any, config: Config) -> CountedModel:
    """Counts of a causal language model; `built`: the library's configuration of its text model.

    Raises InstanceError for a model without head, or of more or less than one stack of blocks.
    """
    rotary = any("Rotary" in type(module).__name__ for module in network.modules())
    reading = _Reading(built, config, rotary)
    head = network.get_output_embeddings()
    if head is None:
        problem = f"{type(network).__name__}, which has no language head"
        raise config.error(None, problem, "a causal language model")
    # Matrices of the embedding and of the head; the same one where they are tied.
    table, matrix = network.get_input_embeddings().weight, head.weight
    stack_name, stack = _stack(network, config)
    in_layers = {id(p) for p in stack.parameters()} | {id(table), id(matrix)}
    leaves = list(_leaves(network))
    first = next(i for i, leaf in enumerate(leaves) if leaf.path.startswith(f".{stack_name}."))
    before, behind = (
        [leaf for leaf in part if id(leaf.parameter) not in in_layers]
        for part in (leaves[:first], leaves[first:])
    )
    longest = reading.number("max_position_embeddings")
    rows = [leaf.parameter.shape[0] for leaf in before if leaf.is_table]
    heads = reading.number("num_attention_heads") or 1
    rates = {k: v for k, v in built.to_dict().items() if "drop" in k and "class" not in k}
    return CountedModel(
        hidden_size=reading.hidden_size,
        vocabulary_rows=int(table.shape[0]),
        vocabulary_columns=int(table.shape[1]),
        tied_embeddings=matrix is table,
        blocks=tuple(map(reading.block, stack)),
        before=reading.total(before),
        behind=reading.total(behind),
        heads=heads,
        num_kv_heads=reading.number("num_key_value_heads") or heads,
        dropout=any(isinstance(v, float) and v > 0 for k, v in rates.items() if "summary" not in k),
        learned_positions=longest if longest and max(rows, default=0) >= longest else None,
        num_experts=reading.number(*_EXPERTS),
    )


class _Leaf(NamedTuple):
    """A parameter, the module that holds it, and whether it is looked up."""

    path: str
    module: Any
    parameter: Any
    is_table: bool


def _leaves(network: Any) -> Iterator[_Leaf]:
    """All parameters in the order in which the model registers them, each once."""
    from torch.nn import Embedding

    for path, parameter in network.named_parameters():
        module = network.get_submodule(path.rpartition(".")[0])
        yield _Leaf(f".{path}", module, parameter, isinstance(module, Embedding))


def _stack(network: Any, config: Config) -> tuple[str, Any]:
    """The list of blocks: the only one outermost in the model, each with its own parameters."""
    from torch.nn import ModuleList

    stacks: dict[str, Any] = {}
    for path, module in network.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in stacks)
        if isinstance(module, ModuleList) and not inside and any(True for _ in module.parameters()):
            stacks[path] = module
    sizes = [sum(p.numel() for p in block.parameters()) for s in stacks.values() for block in s]
    distinct = {id(p): p.numel() for s in stacks.values() for p in s.parameters()}
    if len(stacks) != 1 or sum(sizes) != sum(distinct.values()):
        kind = f"{type(network).__name__} with {', '.join(stacks) or 'no blocks'}"
        shared = ", whose blocks share parameters" if len(stacks) == 1 else ""
        allowed = "one stack of blocks, each with parameters of its own"
        raise config.error(None, kind + shared, allowed)
    return next(iter(stacks.items()))


@dataclass(frozen=True)
class _Reading:
    """Counts parts of a model by its configuration."""

    built: Any
    config: Config
    rotary: bool

    def number(self, *keys: str) -> int:
        """The first of the fields that is there and above 0; else 0."""
        for key in keys:
            value = getattr(self.built, key, None)
            if value is not None and type(value) is not int:
                raise self.config.error(key, repr(value)[:60], "a whole number")
            if value and value > 0:
                return int(value)
        return 0

    def _required(self, key: str) -> int:
        if size := self.number(key):
            return size
        raise self.config.error(key, "missing", "a whole number")

    @property
    def hidden_size(self) -> int:
        return self._required("hidden_size")

    @property
    def _head_dim(self) -> int:
        heads = self.number("num_attention_heads") or 1
        return self.number("head_dim") or self.hidden_size // heads

    def total(self, leaves: list[_Leaf]) -> Part:
        """Sum of the parameters' counts, per token."""
        return sum(map(self._of_parameter, leaves), Part())

    def block(self, block: Any) -> Part:
        """One block: its parameters, scores, residual adds, and inputs of attention and network."""
        part = self.total(list(_leaves(block))) + memory_kernels(_RESIDUAL_ADDS)
        part += Part(replicated_activation_bytes=2 * 2 * self.hidden_size)
        modules = [m for m in block.modules() if list(m.parameters())]
        attention = [m for m in modules if "Attention" in type(m).__name__]
        if attention:
            heads = self._required("num_attention_heads")
            nope, rope = self.number("qk_nope_head_dim"), self.number("qk_rope_head_dim")
            query = nope + rope if nope and rope else self._head_dim
            value = self.number("v_head_dim") or self._head_dim
            part += Part(score_columns=heads * (query + value)) + memory_kernels(ROTARY_KERNELS)
            # Rotary positions make copies of queries and keys, but for latent attention, and where
            # norms have made them.
            inner = [type(m).__name__ for module in attention for m in module.modules()]
            if self.rotary and not rope and not any("Norm" in name for name in inner):
                keys = self.number("num_key_value_heads") or heads
                part += Part(sharded_activation_bytes=2 * (heads + keys) * self._head_dim)
        plain = [m for m in block.modules() if not list(m.children()) and not list(m.parameters())]
        names = [type(module).__name__ for module in plain]
        kernels = sum("Dropout" not in name and name != "Identity" for name in names)
        return part + memory_kernels(kernels)

    def _of_parameter(self, leaf: _Leaf) -> Part:
        from torch.nn import Conv1d

        size, shape = int(leaf.parameter.numel()), tuple(leaf.parameter.shape)
        if leaf.is_table:
            return Part(replicated_parameters=size) + memory_kernels(2)  # lookup, add
        if len(shape) < 2:
            vector = Part(replicated_parameters=size)
            # A norm is a module of vectors alone, which holds this one as its weight.
            vectors = all(p.ndim < 2 for p in leaf.module.parameters())
            if not vectors or not leaf.path.endswith(".weight"):
                return vector
            vector += memory_kernels(1)
            if size == self._head_dim:  # the input of a norm over single heads is that of all
                heads = self.number("num_attention_heads") or 1
                return vector + Part(sharded_activation_bytes=2 * size * heads)
            return vector + Part(replicated_activation_bytes=2 * size)
        experts = self.number(*_EXPERTS)
        of_experts = shape[0] == experts and not isinstance(leaf.module, Conv1d)
        if of_experts and len(shape) == 2:
            return self._router_or_biases(leaf, size, shape)
        alone = _ONE_EXPERT.search(leaf.path) is not None
        if of_experts or alone:
            return self._expert_matrix(size, size if alone else size // shape[0])
        if "expert" in leaf.path and len(shape) > 2:
            problem = f"{leaf.path[1:]} of {shape[0]} entries"
            raise self.config.error(None, problem, f"as many as experts, {experts}")
        # Kept of a product: its side that is not the residual stream; of the wider one else.
        side = size // self.hidden_size if self.hidden_size in shape else max(shape)
        return product(size, 1, 1, kept=side)

    def _router_or_biases(self, leaf: _Leaf, size: int, shape: tuple[int, ...]) -> Part:
        """Biases of all experts; or the router, its fp32 scores and the copies of tokens."""
        if any(p.ndim > 2 for p in leaf.module.parameters(recurse=False)):
            of_output = size if shape[1] == self.hidden_size else 0
            return Part(sharded_parameters=size - of_output, replicated_parameters=of_output)
        copies = self._visited() * (2 + 2) * self.hidden_size
        return Part(
            replicated_parameters=size,
            forward_flops=2 * size,
            kernels=3 + 2,
            memory_kernels=2 + 2,
            replicated_activation_bytes=4 * shape[0] + copies,
            routed_bytes=2 * self._visited() * self.hidden_size,
        )

    def _expert_matrix(self, size: int, of_one: int) -> Part:
        """Matrices of experts: products by the share of them that a token visits, rounded up."""
        experts = self.number(*_EXPERTS) or 1
        visited = self._visited() * (size // of_one)
        flops = 2 * ceil_div(of_one * visited, experts)
        return Part(
            sharded_parameters=size,
            forward_flops=flops,
            kernels=1,
            sharded_activation_bytes=ceil_div(2 * (of_one // self.hidden_size) * visited, experts),
            expert_parameters=size,
            expert_flops=flops,
        )

    def _visited(self) -> int:
        if visited := self.number(*_VISITED):
            return visited
        allowed = f"experts that a token visits, as one of {', '.join(_VISITED)}"
        raise self.config.error(None, "experts without their number per token", allowed)
