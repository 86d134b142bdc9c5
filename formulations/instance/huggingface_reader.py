"""The fields of one Hugging Face `config.json`: typed access, and which are harmless or refused.

A library reads the fields that its class knows and ignores the others, so experts under a dense
model type are another model than the one that it builds. A field that is not counted is refused
where its name speaks of sizes, parts or numbers of parts, unless it is known to change neither
parameters nor FLOPs, or says that there is none (null, false, 0, empty).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from formulations.errors import InstanceError
from formulations.instance.huggingface_defaults import ALIASES, CLASS_DEFAULTS
from formulations.instance.record import shown
from formulations.instance.sizes import WindowSizes

#: How names of models with a causal language head end.
CAUSAL_NAMES = ("ForCausalLM", "LMHeadModel")
_MOST = 10**9
_ATTENTION_KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class ConfigReader:
    """The keys of a supported model type with the defaults of its configuration class."""

    config: Mapping[str, object]
    where: str
    model_type: str

    @property
    def defaults(self) -> dict[str, object]:
        """Key -> default of every key that is read."""
        return CLASS_DEFAULTS[self.model_type]

    @property
    def architecture(self) -> str | None:
        """What the file names; None where it names nothing."""
        return named_architecture(self.config, self.where)

    def value(self, key: str) -> object:
        """The value under any of the key's names, or its default."""
        names = (key, *ALIASES.get(self.model_type, {}).get(key, ()))
        given = [self.config[name] for name in names if name in self.config]
        return given[0] if given else self.defaults[key]

    def refuse(self, key: str, allowed: str) -> InstanceError:
        """The error to raise for the key."""
        return InstanceError(f"{self.where} {key}", repr(self.value(key)), allowed)

    def integer(self, key: str, least: int = 1) -> int:
        """A whole number."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise self.refuse(key, f"a whole number from {least} to {_MOST}")
        return value

    def optional(self, key: str) -> int | None:
        """A whole number, or None."""
        return None if self.value(key) is None else self.integer(key)

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.value(key)
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def dropout(self, *keys: str) -> bool:
        """Whether any of the rates is above 0; all of them are checked."""
        return max(self._rate(key) for key in keys) > 0

    def _rate(self, key: str) -> float:
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.refuse(key, "a number from 0 to below 1")
        return value

    def only(self, key: str, *allowed: object) -> None:
        """Refuses a variant whose costs are not known here."""
        if self.value(key) not in allowed:
            raise self.refuse(key, " or ".join(map(repr, allowed)))

    def window(self, sliding: Sequence[int] | None = None) -> WindowSizes | None:
        """The sliding window; `sliding`: the blocks that have it without `layer_types`.

        None for `sliding`: all of them, and no `layer_types`.
        """
        tokens = self.optional("sliding_window")
        if "use_sliding_window" in self.defaults and not self.flag("use_sliding_window"):
            tokens = None
        blocks = None if sliding is None else self._sliding_blocks(sliding, tokens)
        if tokens is None or blocks == []:
            return None
        return WindowSizes(tokens=tokens, layers=blocks)

    def _sliding_blocks(self, default: Sequence[int], tokens: int | None) -> list[int]:
        kinds = self.value("layer_types")
        if kinds is None:
            return list(default)
        allowed = _ATTENTION_KINDS if tokens else _ATTENTION_KINDS[:1]
        count = self.integer("num_hidden_layers")
        fits = isinstance(kinds, list) and len(kinds) == count
        if not isinstance(kinds, list) or not fits or any(kind not in allowed for kind in kinds):
            raise self.refuse("layer_types", f"a list of {count}, each {' or '.join(allowed)}")
        return [i for i, kind in enumerate(kinds) if kind == "sliding_attention"]


def named_architecture(config: Mapping[str, object], where: str) -> str | None:
    """The first name under `architectures`. Raises InstanceError for what is no list of names."""
    names = config.get("architectures")
    if names is None or names == []:
        return None
    if not isinstance(names, list) or not isinstance(names[0], str):
        allowed = "a list of names, such as LlamaForCausalLM"
        raise InstanceError(f"{where} architectures", repr(names)[:60], allowed)
    return names[0]


def spelling_of(name: object, names: list[str]) -> str:
    """` (did you mean ...?)` for another spelling of a known name: case, signs, doubled letters.

    No more than that: names of architectures that differ in a letter or number are unlike.
    """
    same = [known for known in names if _letters(known) == _letters(str(name))]
    return f" (did you mean {same[0]}?)" if same else ""


def _letters(name: str) -> str:
    return re.sub(r"([a-z])\1+", r"\1", re.sub(r"[^a-z0-9]", "", name.lower()))


#: Words of which one in a name means sizes, parts, or numbers of parts.
_SIZE_WORD = re.compile(
    r"adapters?|attention|attn|audio|bias|biases|blocks?|channels|compress|convs?|cross|d|decoder"
    r"|dense|depth|dims?|embd|embed|embeddings?|encoder|expand|expansion|experts?|ff|ffn|freq"
    r"|frequency|gated?|groups?|heads?|hidden|image|index|indexer|inner|intermediate|interval|k"
    r"|kernel|kv|latent|layers?|linear|lora|mamba|memory|mlp|moe|mtp|multiplier|n|nextn|ngram"
    r"|norms?|num|pattern|period|predict|proj|projection|q|qk|rank|ratio|recurrent|rwkv|shared"
    r"|sizes?|sliding|sparse|speech|ssm|state|stride|text|tower|v|video|vision|visual|vocab|width"
    r"|window"
)
#: Names that change neither parameters nor FLOPs all the same.
_HARMLESS = re.compile(
    r".*_(act|act_fn|activation|coef|dropout|dtype|eps|epsilon|fn|pdrop|prob|range|std|theta"
    r"|token_ids?|token_index)|_?attn_implementation.*|summary_.*"
    r"|attn_logit_softcapping|chunk_size_feed_forward|ep_size|is_decoder|n_ctx|n_group|topk_group"
    r"|no_repeat_ngram_size|num_beams|num_beam_groups|num_labels|num_return_sequences"
    r"|original_max_position_embeddings|output_hidden_states|query_pre_attn_scalar"
    r"|relative_attention_max_distance|reorder_and_upcast_attn|scale_attn_by_inverse_layer_idx"
    r"|scale_attn_weights|scale_decoder_outputs|use_bidirectional_attention"
)
#: Fields that saved configs of a type have and that follow from others, or that nothing reads.
_LATENT = frozenset({"head_dim", "qk_head_dim", "num_key_value_heads"})
_HARMLESS_IN: dict[str, frozenset[str]] = {
    "bert": frozenset(
        {
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
        }
    ),
    "t5": frozenset({"is_gated_act"}),
    "qwen3_moe": frozenset({"max_window_layers"}),
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "kimi_k2": _LATENT,
}


def foreign_fields(
    config: Mapping[str, object], model_type: str, known: Collection[str]
) -> list[str]:
    """Fields that may describe another model than is counted; known: the fields that are."""
    fine = {*known, *_HARMLESS_IN.get(model_type, ())}
    return [key for key, value in config.items() if value and key not in fine and _of_size(key)]


def refuse(config: Mapping[str, object], where: str, key: str) -> InstanceError:
    """The error to raise for such a field."""
    types = [name for name in CLASS_DEFAULTS if key in counted_fields(name)]
    having = f"a model_type with it ({', '.join(types)}), or " if types else ""
    return InstanceError(
        f"{where} {key}",
        f"{shown(config[key])}, which model_type {config['model_type']} does not have",
        f"{having}no such field, if it changes neither parameters nor FLOPs",
    )


def check_aliases(config: Mapping[str, object], where: str, model_type: str) -> None:
    """Raises InstanceError where two names of one field have unlike values."""
    for key, others in ALIASES.get(model_type, {}).items():
        given = [name for name in (key, *others) if name in config]
        for name in given[1:]:
            if config[name] != config[given[0]]:
                first = shown(config[given[0]])
                found = f"{shown(config[name])} beside {given[0]}: {first}"
                raise InstanceError(f"{where} {name}", found, "the same value")


def counted_fields(model_type: str) -> set[str]:
    """Fields of a supported model type that are read, under all their names."""
    aliases = ALIASES.get(model_type, {}).values()
    return {*CLASS_DEFAULTS[model_type], *(name for names in aliases for name in names)}


def _of_size(key: str) -> bool:
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", key).lower().split("_")
    return any(map(_SIZE_WORD.fullmatch, words)) and not _HARMLESS.fullmatch(key)
