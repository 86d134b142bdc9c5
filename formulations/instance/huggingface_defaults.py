"""Defaults of the Hugging Face configuration classes, for keys that a `config.json` leaves out.

Source: huggingface/transformers, `src/transformers/models/*/configuration_*.py`: the defaults of
the fields, `PretrainedConfig` for `tie_word_embeddings`, and `attribute_map` for the other names.
Keys that a class does not declare but its model reads (`head_dim` of several) are None.

`kimi_k2` is DeepSeek-V3's structure (Kimi Team 2025, arXiv 2507.20534, section 2.3) and defaults
(moonshotai/Kimi-K2-Base, `configuration_deepseek.py`).
"""

_LAYERS: dict[str, object] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
}
_HEADS = _LAYERS | {"num_key_value_heads": None, "head_dim": None}
_LLAMA = _HEADS | {"attention_bias": False, "mlp_bias": False}
_MISTRAL = _HEADS | {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}
_MIXTRAL = _MISTRAL | {"sliding_window": None, "num_local_experts": 8, "num_experts_per_tok": 2}
_QWEN2 = _HEADS | {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
}
_QWEN3_MOE = _HEADS | {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 24,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "attention_bias": False,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
}
_GPT_OSS = _HEADS | {
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "attention_bias": True,
    "sliding_window": 128,
    "layer_types": None,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
}
_GEMMA = _HEADS | {
    "vocab_size": 256000,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "attention_bias": False,
}
_GEMMA2 = _GEMMA | {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "layer_types": None,
}
_GEMMA3 = _GEMMA2 | {
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "sliding_window_pattern": 6,
}
_PHI3 = _HEADS | {
    "vocab_size": 32064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "sliding_window": None,
}
_OLMO2 = _HEADS | {"vocab_size": 50304, "attention_bias": False}
_GLM4_MOE = _HEADS | {
    "vocab_size": 151552,
    "intermediate_size": 10944,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "attention_bias": False,
    "use_qk_norm": False,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}
_DEEPSEEK_V2 = _LAYERS | {
    "vocab_size": 102400,
    "attention_bias": False,
    "mlp_bias": False,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "moe_intermediate_size": 1407,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": None,
    "first_k_dense_replace": 0,
    "moe_layer_freq": 1,
}
_DEEPSEEK_V3 = _DEEPSEEK_V2 | {
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
}

#: Model type -> key -> default of its configuration class; None: derived from other keys.
CLASS_DEFAULTS: dict[str, dict[str, object]] = {
    "gpt2": {
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "tie_word_embeddings": True,
        "add_cross_attention": False,
    },
    "bert": {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "add_cross_attention": False,
    },
    "t5": {
        "vocab_size": 32128,
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_decoder_layers": None,
        "num_heads": 8,
        "relative_attention_num_buckets": 32,
        "dropout_rate": 0.1,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "n_positions": None,
    },
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "mixtral": _MIXTRAL,
    "qwen2": _QWEN2,
    "qwen3": _QWEN2 | {"head_dim": 128, "attention_bias": False},
    "qwen3_moe": _QWEN3_MOE,
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "phi3": _PHI3,
    "olmo2": _OLMO2,
    "gpt_oss": _GPT_OSS,
    "glm4_moe": _GLM4_MOE,
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
}

_EXPERTS: dict[str, tuple[str, ...]] = {"n_routed_experts": ("num_local_experts", "num_experts")}
_PREDICTION: dict[str, tuple[str, ...]] = {"num_nextn_predict_layers": ("num_mtp_layers",)}

#: Model type -> key -> the other names that its configuration class accepts for it.
ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "gpt2": {
        "n_embd": ("hidden_size",),
        "n_positions": ("max_position_embeddings",),
        "n_head": ("num_attention_heads",),
        "n_layer": ("num_hidden_layers",),
    },
    "t5": {
        "d_model": ("hidden_size",),
        "d_kv": ("head_dim",),
        "num_heads": ("num_attention_heads",),
        "num_layers": ("num_hidden_layers",),
    },
    "mixtral": {"num_local_experts": ("num_experts",)},
    "qwen3_moe": {"num_experts": ("num_local_experts",)},
    "gpt_oss": {
        "num_local_experts": ("num_experts",),
        "num_experts_per_tok": ("experts_per_token",),
    },
    "glm4_moe": _EXPERTS | _PREDICTION,
    "deepseek_v2": _EXPERTS,
    "deepseek_v3": _EXPERTS | _PREDICTION,
    "kimi_k2": _EXPERTS | _PREDICTION,
    "gemma3_text": {"sliding_window_pattern": ("_sliding_window_pattern",)},
}
