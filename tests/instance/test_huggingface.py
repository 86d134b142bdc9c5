"""Sizes from a `config.json`; data/huggingface/*.txt: changes of one, and what they give."""

import json

import pytest

from formulations.errors import InstanceError
from formulations.instance.huggingface import model_types, sizes_from_config
from formulations.instance.huggingface_model import maximum_positions
from formulations.instance.workload import Workload
from tests.architectures import COUNTED, PUBLISHED, build
from tests.conftest import ROOT

CONFIGS = ROOT / "tests" / "data" / "huggingface"
COUNTS = PUBLISHED | COUNTED
REFUSED = (CONFIGS / "errors.txt").read_text(encoding="utf-8").splitlines()
WINDOWS = (CONFIGS / "windows.txt").read_text(encoding="utf-8").splitlines()
#: Types whose class defaults describe a published model.
DEFAULTS = {
    **{"gpt2": "gpt2", "bert": "bert-base", "t5": "t5-small", "llama": "llama2-7b"},
    **{"mixtral": "mixtral-8x7b", "deepseek_v3": "deepseek-v3", "mistral": "mistral-7b"},
    **{"gemma": "gemma-7b", "gemma2": "gemma2-2b", "phi3": "phi3-mini"},
}


def config_of(name: str, **changes: object) -> dict[str, object]:
    """The config.json of a model, with changes; of no name these alone."""
    base = json.loads((CONFIGS / f"{name}.json").read_text()) if name else {}
    return {**base, **changes}


def workload_of(config: dict[str, object]) -> Workload:
    """Workload of a config at 512 tokens."""
    return build(sizes_from_config(config, "c"), 512)


def trained(workload: Workload) -> int:
    """Parameters of all layers."""
    return sum(layer.parameters for layer in workload.layers)


@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line.rpartition(" | ")[0][:60])
def test_bug_configs_of_models_that_are_not_counted_give_their_line(line: str) -> None:
    """Values out of range, fields of another model, other heads; no other architecture is meant."""
    name, change, expected = line.split(" | ")
    with pytest.raises(InstanceError) as caught:
        sizes_from_config(config_of(name, **json.loads(change)), "c")
    assert str(caught.value) == expected.replace("{types}", ", ".join(model_types()))


@pytest.mark.parametrize("name", COUNTS)
def test_published_parameter_counts(name: str) -> None:
    """The parameter count equals the published model's exactly."""
    assert workload_of(config_of(name)).parameters == COUNTS[name]


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_class_defaults(model_type: str) -> None:
    """A config of nothing but its model type is the model that the class defaults describe."""
    parameters = COUNTS[DEFAULTS[model_type]]
    assert workload_of({"model_type": model_type}).parameters == parameters


@pytest.mark.parametrize(
    ("name", "published", "pretrained"),
    [
        # transform 768^2 + 768, norm 2 * 768, output bias 30522, next sentence 2 * 768 + 2
        (None, 109_482_240, 109_482_240 + 624_188),
        ("BertModel", 109_482_240, 109_482_240 + 624_188),
        ("BertForPreTraining", 110_106_428, 110_106_428),
        # without next sentence (1538) and pooler (768^2 + 768)
        ("BertForMaskedLM", 109_514_298, 109_514_298),
    ],
)
def test_bug_bert_was_its_base_model_whatever_the_config_names(
    name: str | None, published: int, pretrained: int
) -> None:
    """`architectures` says what is counted, and whether pooler and classifier are trained."""
    config = config_of("bert-base", architectures=name and [name])
    workload = workload_of(config)
    assert (workload.parameters, trained(workload)) == (published, pretrained)
    untied = workload_of(config | {"tie_word_embeddings": False})
    has_matrix = name not in (None, "BertModel")
    assert untied.parameters == published + 30522 * 768 * has_matrix


def test_t5_with_a_head_of_its_own() -> None:
    """google/t5-v1_1-small and flan-t5-small, as published: 76,961,152, of them 32128 * 512."""
    changes = {"d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
    config = config_of("t5-small", **changes, num_decoder_layers=8)
    assert workload_of(config | {"tie_word_embeddings": False}).parameters == 76_961_152
    assert workload_of(config).parameters == 76_961_152 - 32128 * 512


def test_flags_of_parameters() -> None:
    """Qwen2's q, k and v have biases whatever the config says; Llama's flag is of all four."""
    sizes = sizes_from_config({"model_type": "qwen2", "attention_bias": False}, "c")
    assert (sizes.qkv_biases, sizes.output_bias) == (True, False)
    # 32 layers with q, k, v, out biases of 4096 each
    biased = workload_of({"model_type": "llama", "attention_bias": True})
    assert biased.parameters == PUBLISHED["llama2-7b"] + 32 * 4 * 4096
    unnamed = sizes_from_config({"model_type": "llama", "architectures": []}, "c")
    assert unnamed.tied_embeddings is unnamed.dropout is False
    rates = {"resid_pdrop": 0.0, "embd_pdrop": 0, "attn_pdrop": 0.0}
    assert sizes_from_config(config_of("gpt2"), "c").dropout
    assert not sizes_from_config(config_of("gpt2", **rates), "c").dropout


def test_maximum_positions() -> None:
    """The longest sequence is read from the key of the model type; T5 need not state one."""
    longest = {"gpt2": 1024, "llama3-8b": 8192, "t5-small": 512}
    assert {name: maximum_positions(config_of(name), "c") for name in longest} == longest
    assert maximum_positions({"model_type": "t5"}, "c") is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama3-8b", {"num_experts": 0, "num_local_experts": None, "mlp_only_layers": []}),
        ("llama3-8b", {"rope_scaling": {"type": "yarn"}, "rms_norm_eps": 1e-6, "num_labels": 2}),
        ("llama3-8b", {"hidden_act": "silu", "quantization_config": {"bits": 4}}),
        ("gpt-oss-20b", {"num_experts": 32}),  # another name of a field that is there
        ("gpt2", {"hidden_size": 768, "num_hidden_layers": 12}),
    ],
)
def test_fields_that_change_nothing(name: str, change: dict[str, object]) -> None:
    """Fields that say "none", those that change neither parameters nor FLOPs, general names."""
    assert sizes_from_config(config_of(name, **change), "c") == sizes_from_config(
        config_of(name), "c"
    )


def test_bug_multi_token_prediction_was_ignored() -> None:
    """The layer of the head trains the modules, which the published count leaves out."""
    # h = 7168: block 11507286016, join 2 h^2 = 102760448, two norms and the final one 3 h = 21504
    with_module = workload_of(config_of("deepseek-v3"))
    without = workload_of(config_of("deepseek-v3", num_nextn_predict_layers=0))
    assert with_module.parameters == without.parameters == PUBLISHED["deepseek-v3"]
    assert trained(with_module) == trained(without) + 11_507_286_016 + 102_760_448 + 21_504
    assert with_module.layers[-1].forward_flops > 2 * without.layers[-1].forward_flops


@pytest.mark.parametrize("line", WINDOWS)
def test_sliding_windows(line: str) -> None:
    """Windows cover the blocks that the class or the config says, if there are any."""
    name, change, tokens, blocks = line.split(" | ")
    window = sizes_from_config(config_of(name, **json.loads(change)), "c").window
    assert str(window and window.tokens) == tokens
    listed = window and window.layers and " ".join(map(str, window.layers))
    assert str(listed) == blocks
