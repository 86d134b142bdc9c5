"""From a Hugging Face `config.json` to the sizes of a transformer.

Missing keys take the defaults of the model type's configuration class
(`formulations.instance.huggingface_defaults`); unknown keys are ignored, as the library does.

What counts as the model: for GPT-2, T5, Llama, Qwen, Mixtral and DeepSeek-V3 the model with its
language head, for BERT the base model with pooler (and training adds its pre-training head, see
`formulations.instance.transformer`). DeepSeek-V3's multi-token-prediction module and its expert
balancing terms, which no gradient trains, are left out, as the library leaves them out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from formulations.errors import InstanceError
from formulations.instance.huggingface_defaults import ALIASES, CLASS_DEFAULTS
from formulations.instance.positions import suggestion
from formulations.instance.sizes import LatentAttentionSizes, MoeSizes, TransformerSizes


def sizes_from_config(config: Mapping[str, object], where: str) -> TransformerSizes:
    """Sizes of the model that a parsed `config.json` describes; `where` names the file in errors.

    Raises InstanceError for an unknown model type, a value of the wrong kind or out of range, and
    sizes that do not fit together.
    """
    reader = _reader(config, where)
    try:
        return _BUILDERS[reader.model_type](reader)
    except ValidationError as error:
        first = error.errors()[0]
        found = f"{_field(first['loc'])}{first['msg'].removeprefix('Value error, ')}"
        raise InstanceError(where, found, "sizes that fit together") from error


def maximum_positions(config: Mapping[str, object], where: str) -> int | None:
    """Longest sequence that the config states, or None. Raises as `sizes_from_config`."""
    reader = _reader(config, where)
    for key in ("n_positions", "max_position_embeddings"):
        if key in reader.defaults:
            return reader.optional(key)
    return None


@dataclass(frozen=True)
class _Reader:
    """Typed access to the keys of one config."""

    config: Mapping[str, object]
    where: str
    model_type: str

    @property
    def defaults(self) -> dict[str, object]:
        return CLASS_DEFAULTS[self.model_type]

    def value(self, key: str) -> object:
        alias = ALIASES.get(self.model_type, {}).get(key, key)
        return self.config.get(key, self.config.get(alias, self.defaults[key]))

    def refuse(self, key: str, allowed: str) -> InstanceError:
        return InstanceError(f"{self.where} {key}", repr(self.value(key)), allowed)

    def integer(self, key: str, least: int = 1) -> int:
        most = 10**9
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refuse(key, f"a whole number from {least} to {most}")
        return value

    def optional(self, key: str, least: int = 1) -> int | None:
        return None if self.value(key) is None else self.integer(key, least)

    def flag(self, key: str) -> bool:
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

    def only(self, key: str, allowed: object) -> None:
        """Refuses a variant whose costs are not known here."""
        if self.value(key) != allowed:
            raise self.refuse(key, f"{allowed!r}")


def _reader(config: Mapping[str, object], where: str) -> _Reader:
    if not isinstance(config, Mapping):
        raise InstanceError(where, f"a {type(config).__name__}", "an object with a model_type")
    found = config.get("model_type")
    if not isinstance(found, str) or found not in CLASS_DEFAULTS:
        hint = suggestion(found, list(CLASS_DEFAULTS))
        shown = "missing" if "model_type" not in config else repr(found) + hint
        raise InstanceError(f"{where} model_type", shown, ", ".join(CLASS_DEFAULTS))
    return _Reader(config, where, found)


def _field(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) + ": " if location else ""


def _gpt2(config: _Reader) -> TransformerSizes:
    config.only("add_cross_attention", False)
    return TransformerSizes(
        hidden_size=config.integer("n_embd"),
        layers=config.integer("n_layer"),
        heads=config.integer("n_head"),
        ffn_size=config.optional("n_inner"),
        vocabulary_size=config.integer("vocab_size"),
        learned_positions=config.integer("n_positions"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        dropout=config.dropout("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    )


def _bert(config: _Reader) -> TransformerSizes:
    config.only("add_cross_attention", False)
    config.only("position_embedding_type", "absolute")
    return TransformerSizes(
        hidden_size=config.integer("hidden_size"),
        layers=config.integer("num_hidden_layers"),
        heads=config.integer("num_attention_heads"),
        ffn_size=config.integer("intermediate_size"),
        vocabulary_size=config.integer("vocab_size"),
        learned_positions=config.integer("max_position_embeddings"),
        token_types=config.integer("type_vocab_size", least=0),
        embedding_norm=True,
        final_norm=False,
        pooler=True,
        masked_lm_head=True,
        tied_embeddings=config.flag("tie_word_embeddings"),
        dropout=config.dropout("hidden_dropout_prob", "attention_probs_dropout_prob"),
    )


def _t5(config: _Reader) -> TransformerSizes:
    layers = config.integer("num_layers")
    activation = config.value("feed_forward_proj")
    words = activation.split("-") if isinstance(activation, str) else []
    if len(words) not in (1, 2) or (len(words) == 2 and words[0] != "gated"):
        raise config.refuse("feed_forward_proj", "an activation such as relu, or gated-gelu")
    return TransformerSizes(
        hidden_size=config.integer("d_model"),
        layers=layers,
        decoder_layers=config.optional("num_decoder_layers") or layers,
        heads=config.integer("num_heads"),
        head_dim=config.integer("d_kv"),
        ffn_size=config.integer("d_ff"),
        gated_ffn=len(words) == 2,
        vocabulary_size=config.integer("vocab_size"),
        relative_position_buckets=config.integer("relative_attention_num_buckets"),
        norm="rmsnorm",
        qkv_biases=False,
        output_bias=False,
        ffn_biases=False,
        tied_embeddings=config.flag("tie_word_embeddings"),
        dropout=config.dropout("dropout_rate"),
    )


def _decoder(config: _Reader, **own: object) -> TransformerSizes:
    """Llama's block: rotary positions, RMS norms, gated network; `own`: the other sizes."""
    common = {
        "hidden_size": config.integer("hidden_size"),
        "layers": config.integer("num_hidden_layers"),
        "heads": config.integer("num_attention_heads"),
        "ffn_size": config.integer("intermediate_size"),
        "gated_ffn": True,
        "vocabulary_size": config.integer("vocab_size"),
        "rotary_positions": True,
        "norm": "rmsnorm",
        "qkv_biases": False,
        "output_bias": False,
        "ffn_biases": False,
        "tied_embeddings": config.flag("tie_word_embeddings"),
        "dropout": config.dropout("attention_dropout"),
    }
    return TransformerSizes.model_validate(common | own)


def _grouped(config: _Reader, **own: object) -> TransformerSizes:
    """With grouped heads."""
    kv_heads = config.optional("num_key_value_heads")
    return _decoder(config, kv_heads=kv_heads, head_dim=config.optional("head_dim"), **own)


def _llama_or_qwen3(config: _Reader, mlp_bias: bool, qk_norms: bool) -> TransformerSizes:
    biases = config.flag("attention_bias")
    return _grouped(
        config, qkv_biases=biases, output_bias=biases, ffn_biases=mlp_bias, qk_norms=qk_norms
    )


def _mixtral(config: _Reader) -> TransformerSizes:
    moe = MoeSizes(
        experts=config.integer("num_local_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn_size=config.integer("intermediate_size"),
    )
    return _grouped(config, moe=moe)


def _deepseek_v3(config: _Reader) -> TransformerSizes:
    biases = config.flag("attention_bias")
    latent = LatentAttentionSizes(
        query_rank=config.optional("q_lora_rank"),
        kv_rank=config.integer("kv_lora_rank"),
        nope_head_dim=config.integer("qk_nope_head_dim"),
        rope_head_dim=config.integer("qk_rope_head_dim"),
        value_head_dim=config.integer("v_head_dim"),
    )
    moe = MoeSizes(
        experts=config.integer("n_routed_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn_size=config.integer("moe_intermediate_size"),
        shared_experts=config.integer("n_shared_experts", least=0),
        dense_first_layers=config.integer("first_k_dense_replace", least=0),
    )
    return _decoder(config, latent_attention=latent, moe=moe, qkv_biases=biases, output_bias=biases)


_BUILDERS: dict[str, Callable[[_Reader], TransformerSizes]] = {
    "gpt2": _gpt2,
    "bert": _bert,
    "t5": _t5,
    "llama": lambda config: _llama_or_qwen3(config, config.flag("mlp_bias"), qk_norms=False),
    "qwen2": lambda config: _grouped(config, qkv_biases=True),
    "qwen3": lambda config: _llama_or_qwen3(config, mlp_bias=False, qk_norms=True),
    "mixtral": _mixtral,
    "deepseek_v3": _deepseek_v3,
}
