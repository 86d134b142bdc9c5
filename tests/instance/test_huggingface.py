"""Promises of formulations.instance.huggingface."""

import json
from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance.huggingface import sizes_from_config
from formulations.instance.huggingface_model import maximum_positions
from formulations.instance.transformer import build_workload
from formulations.instance.workload import Workload
from tests.architectures import COUNTED, PUBLISHED

CONFIGS = Path(__file__).resolve().parent.parent / "data" / "huggingface"


def config_of(name: str) -> dict[str, object]:
    """The parsed config.json of a model."""
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    assert isinstance(config, dict)
    return config


def workload_of(config: dict[str, object]) -> Workload:
    """Workload of a config at 512 tokens."""
    return build_workload(
        sizes_from_config(config, "config.json"),
        name="w",
        source="test",
        sequence_length=512,
        global_batch=8,
    )


@pytest.mark.parametrize("name", PUBLISHED | COUNTED)
def test_published_parameter_counts(name: str) -> None:
    """The parameter count equals the published model's exactly."""
    assert workload_of(config_of(name)).parameters == (PUBLISHED | COUNTED)[name]


def test_reference_parameter_counts(reference: Path) -> None:
    """The parameter counts equal the reference file's, and no model of it is left out."""
    text = (reference / "huggingface" / "parameter_counts.json").read_text()
    assert {name: workload_of(config_of(name)).parameters for name in PUBLISHED} == json.loads(text)


#: Types whose class defaults describe a published model.
DEFAULTS = {
    **{"gpt2": "gpt2", "bert": "bert-base", "t5": "t5-small", "llama": "llama2-7b"},
    **{"mixtral": "mixtral-8x7b", "deepseek_v3": "deepseek-v3", "mistral": "mistral-7b"},
    **{"gemma": "gemma-7b", "gemma2": "gemma2-2b", "phi3": "phi3-mini"},
}


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_class_defaults(model_type: str) -> None:
    """A config of nothing but its model type is the model that the class defaults describe."""
    parameters = (PUBLISHED | COUNTED)[DEFAULTS[model_type]]
    assert workload_of({"model_type": model_type}).parameters == parameters


def test_bert_pretraining_head_is_trained_but_not_counted() -> None:
    """The layers hold the parameters of pre-training, `parameters` those of the base model."""
    # transform 768^2 + 768, norm 2 * 768, output bias 30522, next sentence 2 * 768 + 2: 624188
    workload = workload_of(config_of("bert-base"))
    assert sum(layer.parameters for layer in workload.layers) == PUBLISHED["bert-base"] + 624_188


@pytest.mark.parametrize(
    ("name", "published", "trained"),
    [
        (None, 109_482_240, 110_106_428),
        ("BertModel", 109_482_240, 110_106_428),
        # with transform, norm and bias of the masked-token head (622650), next sentence (1538)
        ("BertForPreTraining", 110_106_428, 110_106_428),
        # with the former, without pooler (768^2 + 768)
        ("BertForMaskedLM", 109_514_298, 109_514_298),
    ],
)
def test_bug_bert_was_its_base_model_whatever_the_config_names(
    name: str | None, published: int, trained: int
) -> None:
    """`architectures` says what is counted, and whether pooler and classifier are trained."""
    config = config_of("bert-base") | {"architectures": name and [name]}
    workload = workload_of(config)
    assert workload.parameters == published
    assert sum(layer.parameters for layer in workload.layers) == trained
    untied = workload_of(config | {"tie_word_embeddings": False})
    has_matrix = name not in (None, "BertModel")
    assert untied.parameters == published + 30522 * 768 * has_matrix


def test_t5_with_a_head_of_its_own() -> None:
    """google/t5-v1_1-small and flan-t5-small, as published: 76,961,152, of them 32128 * 512."""
    changes = {"d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
    config = config_of("t5-small") | changes | {"num_decoder_layers": 8}
    assert workload_of(config | {"tie_word_embeddings": False}).parameters == 76_961_152
    assert workload_of(config).parameters == 76_961_152 - 32128 * 512


@pytest.mark.parametrize(
    ("model_type", "names", "allowed"),
    [
        ("bert", "BertForTokenClassification", "BertModel, BertForPreTraining, BertForMaskedLM"),
        ("t5", "T5EncoderModel", "T5ForConditionalGeneration, T5WithLMHeadModel"),
        ("gpt2", "GPT2DoubleHeadsModel", "a name that ends in ForCausalLM or LMHeadModel"),
        ("qwen2", "Qwen2ForRewardModel", "a name that ends in ForCausalLM or LMHeadModel"),
    ],
)
def test_bug_models_with_other_heads_were_counted_as_if_they_had_ours(
    model_type: str, names: str, allowed: str
) -> None:
    """A head that is not counted is refused by its name."""
    with pytest.raises(InstanceError, match=f"^c architectures: {names}; allowed: {allowed}$"):
        sizes_from_config({"model_type": model_type, "architectures": [names]}, "c")


@pytest.mark.parametrize("value", ["LlamaForCausalLM", [3], {"a": 1}, True])
def test_architectures_are_a_list_of_names(value: object) -> None:
    """Null and an empty list name nothing; all else is refused."""
    unnamed: tuple[object, ...] = (None, [])
    for nothing in unnamed:
        sizes_from_config({"model_type": "llama", "architectures": nothing}, "c")
    with pytest.raises(InstanceError, match=r"^c architectures: .*; allowed: a list of names"):
        sizes_from_config({"model_type": "llama", "architectures": value}, "c")


def test_flags_of_parameters() -> None:
    """Qwen2's q, k and v have biases whatever the config says; Llama's flag is of all four.

    A tied Llama has one vocabulary matrix less.
    """
    sizes = sizes_from_config({"model_type": "qwen2", "attention_bias": False}, "c")
    assert (sizes.qkv_biases, sizes.output_bias) == (True, False)
    # 32 layers with q, k, v, out biases of 4096 each
    biased = workload_of({"model_type": "llama", "attention_bias": True})
    assert biased.parameters == PUBLISHED["llama2-7b"] + 32 * 4 * 4096
    tied = workload_of({"model_type": "llama", "tie_word_embeddings": True})
    assert tied.parameters == PUBLISHED["llama2-7b"] - 32000 * 4096


def test_dropout_rates_of_zero_keep_no_masks() -> None:
    """Dropout counts only where a rate is above 0."""
    rates = {"resid_pdrop": 0.0, "embd_pdrop": 0, "attn_pdrop": 0.0}
    assert sizes_from_config(config_of("gpt2"), "c").dropout
    assert not sizes_from_config(config_of("gpt2") | rates, "c").dropout


def test_maximum_positions() -> None:
    """The longest sequence is read from the key of the model type; T5 need not state one."""
    longest = {"gpt2": 1024, "llama3-8b": 8192, "t5-small": 512}
    for name, positions in longest.items():
        assert maximum_positions(config_of(name), "c") == positions
    assert maximum_positions({"model_type": "t5"}, "c") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "Lama"}, r"c.json model_type: 'Lama' \(did you mean llama\?\); allowed: g"),
        ({"model_type": 3}, r"c.json model_type: 3; allowed: gpt2, bert, .*kimi_k2; with"),
        ({"hidden_size": -4096}, r"c.json hidden_size: -4096; allowed: a whole number from 1 to"),
        ({"hidden_size": "4096"}, r"c.json hidden_size: '4096'; allowed: a whole number"),
        ({"hidden_size": None}, r"c.json hidden_size: None; allowed: a whole number"),
        ({"num_hidden_layers": True}, r"c.json num_hidden_layers: True; allowed: a whole number"),
        ({"num_hidden_layers": 10**12}, r"c.json num_hidden_layers: 1000000000000; allowed"),
        ({"num_hidden_layers": 10**8}, r"c.json: layers: .* equal to 1000; allowed: sizes that"),
        ({"num_attention_heads": 31}, r"c.json: heads 31 do not divide hidden_size 4096"),
        ({"num_key_value_heads": 3}, r"c.json: kv_heads 3 do not divide heads 32"),
        ({"tie_word_embeddings": "no"}, r"c.json tie_word_embeddings: 'no'; allowed: true or"),
        ({"attention_dropout": 1.5}, r"c.json attention_dropout: 1.5; allowed: a number from 0"),
    ],
)
def test_bad_values(change: dict[str, object], message: str) -> None:
    """A bad value is refused with the key, what was found and what is allowed."""
    with pytest.raises(InstanceError, match=message):
        sizes_from_config(config_of("llama3-8b") | change, "c.json")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("qwen3-8b", {"num_experts": 128}, r"c num_experts: 128, which model_type qwen3 does not"),
        ("qwen3-8b", {"num_experts": 128}, r"allowed: a model_type with it \(mixtral, qwen3_moe,"),
        ("llama3-8b", {"num_local_experts": 8}, "num_local_experts: 8, which model_type llama"),
        ("llama3-8b", {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers: 1, which"),
        ("llama3-8b", {"sliding_window": 4096}, "sliding_window: 4096, which model_type llama"),
        ("mistral-7b", {"attention_bias": True}, "attention_bias: true, which model_type mistral"),
        ("mixtral-8x7b", {"n_shared_experts": 1}, "n_shared_experts: 1, which model_type mixtral"),
        ("gpt2", {"vision_config": {"depth": 2}}, "vision_config: a mapping, which"),
        ("gpt2", {"pruned_heads": {"0": [1]}}, "pruned_heads: a mapping, .*: no such field"),
        ("t5-small", {"tie_encoder_decoder": True}, "tie_encoder_decoder: true, which"),
    ],
)
def test_bug_fields_of_another_model_were_ignored(
    name: str, change: dict[str, object], message: str
) -> None:
    """A field of sizes or parts that the model type does not have is refused by its name."""
    with pytest.raises(InstanceError, match=message):
        sizes_from_config(config_of(name) | change, "c")


@pytest.mark.parametrize(
    "change",
    [
        {"num_experts": 0, "num_local_experts": None, "mlp_only_layers": [], "qk_norm": False},
        {"rope_scaling": {"type": "yarn"}, "rms_norm_eps": 1e-6, "num_labels": 2},
        {"hidden_act": "silu", "output_hidden_states": True, "_attn_implementation": "sdpa"},
        {"quantization_config": {"bits": 4}, "bos_token_id": 1, "router_aux_loss_coef": 0.1},
    ],
)
def test_fields_that_change_nothing(change: dict[str, object]) -> None:
    """Fields that say "none", and those that change neither parameters nor FLOPs, are ignored."""
    config = config_of("llama3-8b")
    assert sizes_from_config(config | change, "c") == sizes_from_config(config, "c")


def test_bug_multi_token_prediction_was_ignored() -> None:
    """The layer of the head trains the modules, which the published count leaves out."""
    # h = 7168: block 11507286016, join 2 h^2 = 102760448, two norms and the final one 3 h = 21504
    with_module = workload_of(config_of("deepseek-v3"))
    without = workload_of(config_of("deepseek-v3") | {"num_nextn_predict_layers": 0})
    assert with_module.parameters == without.parameters == PUBLISHED["deepseek-v3"]
    added = 11_507_286_016 + 102_760_448 + 21_504
    assert with_module.layers[-1].parameters == without.layers[-1].parameters + added
    assert with_module.layers[-1].forward_flops > 2 * without.layers[-1].forward_flops


def test_two_names_of_one_field_agree() -> None:
    """A field under two names has one value; the general names are those of the class."""
    alias, plain = {"hidden_size": 1600, "num_hidden_layers": 48}, {"n_embd": 1600, "n_layer": 48}
    gpt2 = {"model_type": "gpt2", "n_head": 25}
    assert sizes_from_config(gpt2 | alias, "c") == sizes_from_config(gpt2 | plain, "c")
    config = config_of("gpt-oss-20b")
    assert sizes_from_config(config | {"num_experts": 32}, "c") == sizes_from_config(config, "c")
    with pytest.raises(InstanceError, match="num_experts: 16 beside num_local_experts: 32; allow"):
        sizes_from_config(config | {"num_experts": 16}, "c")


@pytest.mark.parametrize(
    ("name", "change", "tokens", "layers"),
    [
        ("mistral-7b", {}, 4096, None),
        ("gpt-oss-20b", {"layer_types": None}, 128, list(range(0, 24, 2))),
        ("gpt-oss-20b", {}, 128, list(range(0, 24, 2))),
        ("gemma3-1b", {}, 512, [i for i in range(26) if i not in (5, 11, 17, 23)]),
        ("qwen3-8b", {"use_sliding_window": True, "max_window_layers": 34}, 4096, [34, 35]),
        ("qwen3-30b-a3b", {"use_sliding_window": True, "sliding_window": 512}, 512, None),
    ],
)
def test_sliding_windows(
    name: str, change: dict[str, object], tokens: int, layers: list[int] | None
) -> None:
    """Windows cover the blocks that the class or the config says."""
    window = sizes_from_config(config_of(name) | change, "c").window
    assert window is not None
    assert (window.tokens, window.layers) == (tokens, layers)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("qwen2-7b", {"sliding_window": 4096}),
        ("mistral-7b", {"sliding_window": None}),
        ("gemma2-2b", {"layer_types": ["full_attention"] * 26}),
        ("qwen2-7b", {"use_sliding_window": True}),
    ],
)
def test_no_sliding_window(name: str, change: dict[str, object]) -> None:
    """No window where it is not used, or no block has it."""
    assert sizes_from_config(config_of(name) | change, "c").window is None


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "allowed: a list of 24, each"),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "each full_attention or slid"),
        ("qwen2-7b", {"layer_types": ["sliding_attention"] * 28}, "each full_attention$"),
        ("qwen3-30b-a3b", {"decoder_sparse_step": 2}, "decoder_sparse_step: 2; allowed: 1"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [0]}, r"mlp_only_layers: \[0\]; allowed: None or"),
        ("deepseek-v2-lite", {"moe_layer_freq": 2}, "moe_layer_freq: 2; allowed: 1"),
        ("deepseek-v2-lite", {"num_experts_per_tok": None}, "num_experts_per_tok: None; allowed"),
        ("t5-small", {"is_encoder_decoder": False}, "is_encoder_decoder: False; allowed: True"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention: True"),
        ("bert-base", {"position_embedding_type": "relative_key"}, "'absolute'"),
        ("t5-small", {"feed_forward_proj": "wide-relu"}, "feed_forward_proj: 'wide-relu'"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "9, above experts 8"),
    ],
)
def test_refused_variants(name: str, change: dict[str, object], message: str) -> None:
    """Layers that differ in a way that is not counted are refused by the field's name."""
    with pytest.raises(InstanceError, match=message):
        sizes_from_config(config_of(name) | change, "c")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("Llama", "llama"), ("lama", "llama"), ("Qwen3-MoE", "qwen3_moe")],
)
def test_other_spellings_are_suggested(name: str, meant: str) -> None:
    """A known name in another spelling is suggested."""
    with pytest.raises(InstanceError, match=rf"\(did you mean {meant}\?\)"):
        sizes_from_config({"model_type": name}, "c")


@pytest.mark.parametrize(
    "name",
    ["mamba", "mllama", "bart", "mt5", "ministral", "qwen2_moe", "gemma3n_text", "olmo3"],
)
def test_bug_another_architecture_was_suggested(name: str) -> None:
    """A suggestion never names another architecture, however close its name."""
    with pytest.raises(InstanceError) as caught:
        sizes_from_config({"model_type": name}, "c")
    assert "did you mean" not in str(caught.value)


def test_config_without_model_type() -> None:
    """A config without model type is refused, and so is a JSON list."""
    with pytest.raises(InstanceError, match=r"c.json model_type: missing; allowed: gpt2, bert"):
        sizes_from_config({"hidden_size": 8}, "c.json")
    with pytest.raises(InstanceError, match=r"c.json: a list; allowed: an object"):
        sizes_from_config([], "c.json")  # type: ignore[arg-type]
