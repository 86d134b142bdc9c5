"""From a Hugging Face `config.json` to the sizes of a transformer.

Missing keys take the defaults of the model type's configuration class
(`formulations.instance.huggingface_reader`). Keys that this class does not read are refused where
they may describe another model (`formulations.instance.huggingface_reader`). Other model types are
counted from the library's model where it is installed (`formulations.instance.huggingface_model`).

What counts as the model is what `architectures` names, with its language head; other heads are
refused by name. Of BERT the base model counts too, and where nothing is named: training adds
its pre-training head (see `formulations.instance.transformer`). T5 v1.1 has a head of its own, as
published (`tie_word_embeddings: false`; transformers 5 ties it all the same). The multi-token
prediction modules of DeepSeek-V3, Kimi K2 and GLM-4.5 are trained, but not part of the published
count, as the library leaves them out; so are expert balancing terms, which no gradient trains.
"""

from collections.abc import Callable, Mapping

from pydantic import ValidationError

from formulations.errors import InstanceError
from formulations.instance.huggingface_defaults import CLASS_DEFAULTS
from formulations.instance.huggingface_model import counted_from_config, library_knows
from formulations.instance.huggingface_reader import (
    CAUSAL_NAMES,
    ConfigReader,
    check_aliases,
    counted_fields,
    foreign_fields,
    refuse,
    spelling_of,
)
from formulations.instance.sizes import LatentAttentionSizes, MoeSizes, TransformerSizes
from formulations.instance.transformer import Architecture


def sizes_from_config(config: Mapping[str, object], where: str) -> TransformerSizes:
    """Sizes of the model that a parsed `config.json` describes; `where` names the file in errors.

    Raises InstanceError for an unknown model type, a value of the wrong kind or out of range,
    sizes that do not fit together, and fields that may describe another model.
    """
    reader = _reader(config, where)
    check_aliases(config, where, reader.model_type)
    for key in foreign_fields(config, reader.model_type, counted_fields(reader.model_type)):
        raise refuse(config, where, key)
    _check_architecture(reader)
    try:
        return _BUILDERS[reader.model_type](reader)
    except ValidationError as error:
        first = error.errors()[0]
        found = f"{_field(first['loc'])}{first['msg'].removeprefix('Value error, ')}"
        raise InstanceError(where, found, "sizes that fit together") from error


def architecture_from_config(config: Mapping[str, object], where: str) -> Architecture:
    """Sizes of a model of a supported type, and counts of any other that the library has."""
    model_type = config.get("model_type")
    if model_type not in CLASS_DEFAULTS and library_knows(model_type):
        return counted_from_config(config, where)
    return sizes_from_config(config, where)


def maximum_positions(config: Mapping[str, object], where: str) -> int | None:
    """Longest sequence that the config states, or None. Raises as `sizes_from_config`."""
    if library_knows(config.get("model_type")) and config["model_type"] not in CLASS_DEFAULTS:
        longest = config.get("max_position_embeddings")
        return longest if type(longest) is int and longest > 0 else None
    reader = _reader(config, where)
    for key in ("n_positions", "max_position_embeddings"):
        if key in reader.defaults:
            return reader.optional(key)
    return None


def _reader(config: Mapping[str, object], where: str) -> ConfigReader:
    if not isinstance(config, Mapping):
        raise InstanceError(where, f"a {type(config).__name__}", "an object with a model_type")
    found = config.get("model_type")
    if not isinstance(found, str) or found not in CLASS_DEFAULTS:
        hint = spelling_of(found, list(CLASS_DEFAULTS))
        shown = "missing" if "model_type" not in config else repr(found) + hint
        others = "with the optional extra `transformers` those of that library"
        allowed = f"{', '.join(CLASS_DEFAULTS)}; {others}"
        raise InstanceError(f"{where} model_type", shown, allowed)
    return ConfigReader(config, where, found)


def _field(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) + ": " if location else ""


#: Names of architectures that are counted; of other types those of causal language models.
_NAMES = {
    "bert": ("BertModel", "BertForPreTraining", "BertForMaskedLM"),
    "t5": ("T5ForConditionalGeneration", "T5WithLMHeadModel"),
}


def _check_architecture(config: ConfigReader) -> None:
    """Raises InstanceError for a model that is not counted, such as one with another head."""
    name, names = config.architecture, _NAMES.get(config.model_type)
    if name is None or (name in names if names else name.endswith(CAUSAL_NAMES)):
        return
    allowed = ", ".join(names) if names else f"a name that ends in {' or '.join(CAUSAL_NAMES)}"
    raise InstanceError(f"{config.where} architectures", name, allowed)


def _gpt2(config: ConfigReader) -> TransformerSizes:
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


def _bert(config: ConfigReader) -> TransformerSizes:
    """Of a masked language model no pooler; without a name the base model."""
    name = config.architecture
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
        pooler=name != "BertForMaskedLM",
        masked_lm_head=True,
        published_head=name not in (None, "BertModel"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        dropout=config.dropout("hidden_dropout_prob", "attention_probs_dropout_prob"),
    )


def _t5(config: ConfigReader) -> TransformerSizes:
    config.only("is_encoder_decoder", True)
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


def _decoder(config: ConfigReader, **own: object) -> TransformerSizes:
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


def _grouped(config: ConfigReader, **own: object) -> TransformerSizes:
    """With grouped heads."""
    kv_heads = config.optional("num_key_value_heads")
    return _decoder(config, kv_heads=kv_heads, head_dim=config.optional("head_dim"), **own)


def _biased(config: ConfigReader, **own: object) -> TransformerSizes:
    """With grouped heads, and biases of all four projections of attention if it says so."""
    biases = config.flag("attention_bias")
    return _grouped(config, qkv_biases=biases, output_bias=biases, **own)


def _qwen(config: ConfigReader) -> TransformerSizes:
    """Qwen2 and Qwen3: a window, if used, in all but the first blocks."""
    first, count = config.integer("max_window_layers", least=0), config.integer("num_hidden_layers")
    window = config.window(range(first, count))
    if config.model_type == "qwen3":
        return _biased(config, window=window, qk_norms=True)
    return _grouped(config, window=window, qkv_biases=True)


def _qwen3_moe(config: ConfigReader) -> TransformerSizes:
    config.only("decoder_sparse_step", 1)
    config.only("mlp_only_layers", None, [])
    moe = _experts(config, "num_experts", "moe_intermediate_size")
    return _biased(config, moe=moe, window=config.window(), qk_norms=True)


def _gpt_oss(config: ConfigReader) -> TransformerSizes:
    window = config.window(range(0, config.integer("num_hidden_layers"), 2))
    experts = _experts(config, "num_local_experts", "intermediate_size")
    moe = experts.but(biases=True)
    return _biased(config, moe=moe, window=window, attention_sinks=True)


def _gemma2(config: ConfigReader) -> TransformerSizes:
    """Gemma 2: every second block slides, from the first on."""
    window = config.window(range(0, config.integer("num_hidden_layers"), 2))
    return _biased(config, window=window, branch_norms=True)


def _gemma3(config: ConfigReader) -> TransformerSizes:
    """The text model of Gemma 3: all blocks slide but every sixth (`sliding_window_pattern`)."""
    period, count = config.integer("sliding_window_pattern"), config.integer("num_hidden_layers")
    sliding = [block for block in range(count) if (block + 1) % period]
    return _biased(config, window=config.window(sliding), branch_norms=True, qk_norms=True)


def _phi3(config: ConfigReader) -> TransformerSizes:
    dropout = config.dropout("resid_pdrop", "embd_pdrop", "attention_dropout")
    return _grouped(config, window=config.window(), dropout=dropout)


def _glm4_moe(config: ConfigReader) -> TransformerSizes:
    return _grouped(
        config,
        qkv_biases=config.flag("attention_bias"),
        qk_norms=config.flag("use_qk_norm"),
        moe=_shared_experts(config),
        mtp_layers=config.integer("num_nextn_predict_layers", least=0),
    )


def _deepseek(config: ConfigReader) -> TransformerSizes:
    """DeepSeek-V2 and V3, Kimi K2: latent attention, routed and shared experts."""
    config.only("moe_layer_freq", 1)
    config.only("mlp_bias", False)
    biases = config.flag("attention_bias")
    latent = LatentAttentionSizes(
        query_rank=config.optional("q_lora_rank"),
        kv_rank=config.integer("kv_lora_rank"),
        nope_head_dim=config.integer("qk_nope_head_dim"),
        rope_head_dim=config.integer("qk_rope_head_dim"),
        value_head_dim=config.integer("v_head_dim"),
    )
    predicts = "num_nextn_predict_layers" in config.defaults
    return _decoder(
        config,
        latent_attention=latent,
        moe=_shared_experts(config),
        qkv_biases=biases,
        output_bias=biases,
        mtp_layers=config.integer("num_nextn_predict_layers", least=0) if predicts else 0,
    )


def _experts(config: ConfigReader, count: str, width: str) -> MoeSizes:
    return MoeSizes(
        experts=config.integer(count),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn_size=config.integer(width),
    )


def _shared_experts(config: ConfigReader) -> MoeSizes:
    """Routed and shared experts behind some dense blocks."""
    more = {
        "shared_experts": config.integer("n_shared_experts", least=0),
        "dense_first_layers": config.integer("first_k_dense_replace", least=0),
    }
    routed = _experts(config, "n_routed_experts", "moe_intermediate_size")
    return MoeSizes.model_validate(routed.model_dump() | more)


_BUILDERS: dict[str, Callable[[ConfigReader], TransformerSizes]] = {
    "gpt2": _gpt2,
    "bert": _bert,
    "t5": _t5,
    "llama": lambda config: _biased(config, ffn_biases=config.flag("mlp_bias")),
    "mistral": lambda config: _grouped(config, window=config.window()),
    "mixtral": lambda config: _grouped(
        config,
        moe=_experts(config, "num_local_experts", "intermediate_size"),
        window=config.window(),
    ),
    "qwen2": _qwen,
    "qwen3": _qwen,
    "qwen3_moe": _qwen3_moe,
    "gemma": _biased,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "phi3": _phi3,
    "olmo2": lambda config: _biased(config, qk_norms_of_all_heads=True),
    "gpt_oss": _gpt_oss,
    "glm4_moe": _glm4_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
}
