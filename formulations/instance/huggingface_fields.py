"""Fields of a `config.json` that no architecture here counts: harmless, or refused by name.

A library reads the fields that its class knows and ignores the others, so experts under a dense
model type are another model than the one that it builds. A field that is not counted is refused
where its name speaks of sizes, parts or numbers of parts, unless it is known to change neither
parameters nor FLOPs, or says that there is none (null, false, 0, empty).
"""

import re
from collections.abc import Collection, Mapping

from formulations.errors import InstanceError
from formulations.instance.huggingface_defaults import ALIASES, CLASS_DEFAULTS
from formulations.instance.quantities import shown

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
