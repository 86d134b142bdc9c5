"""Promises of formulations.instance.huggingface_model.

They need the optional extra `transformers` and are skipped where it is missing.
"""

import json
from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance.counted import CountedModel
from formulations.instance.huggingface import (
    model_types,
    sizes_from_config,
    spelling_of,
)
from formulations.instance.huggingface_model import architecture_from_config, counted_from_config
from formulations.instance.transformer import Architecture, build_workload
from formulations.instance.workload import Workload

CONFIGS = Path(__file__).resolve().parent.parent / "data" / "huggingface"
REASON = "the optional extra `transformers` is not installed"
transformers = pytest.importorskip("transformers", reason=REASON)
torch = pytest.importorskip("torch", reason=REASON)

#: Models of one stack; T5 has two.
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json") if path.stem != "t5-small")
#: Read by our builders or by other implementations, not declared by the library's class.
UNDECLARED = {"experts_per_token", "max_window_layers", "moe_layer_freq"}
UNDECLARED |= {"num_nextn_predict_layers"}
UNDECLARED |= {"position_embedding_type", "sliding_window_pattern"}
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_key_value_heads": 8}
#: A type without builder: 2 blocks of 4 h^2 and 8 h^2, biases 13 h, norms 4 h; final norm 2 h.
NEOX = {"model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 4}
NEOX |= {"num_hidden_layers": 2, "intermediate_size": 256, "vocab_size": 100}


def config_of(name: str) -> dict[str, object]:
    """A published config, without prediction modules, which the library does not build."""
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    assert isinstance(config, dict)
    return config | ({"num_nextn_predict_layers": 0} if "n_routed_experts" in config else {})


def library_config(config: dict[str, object]) -> dict[str, object]:
    """What the library takes for the same model."""
    known = {key: value for key, value in config.items() if key not in UNDECLARED}
    types = {"kimi_k2": "deepseek_v3"}
    heads = {"architectures": ["BertForPreTraining"]} if config["model_type"] == "bert" else {}
    return (
        known | heads | {"model_type": types.get(str(config["model_type"]), config["model_type"])}
    )


def workload_of(architecture: Architecture) -> Workload:
    """Workload of 512 tokens."""
    return build_workload(architecture, name="w", source="t", sequence_length=512, global_batch=8)


@pytest.mark.parametrize("name", NAMES)
def test_supported_types_equal_the_library(name: str) -> None:
    """Parameters of every layer and FLOPs of every block are those of the library's model.

    What a block keeps is told from its matrices to 5 %.
    """
    config = config_of(name)
    ours = workload_of(sizes_from_config(config, "c"))
    library = workload_of(counted_from_config(library_config(config), "c"))
    for stated, counted in zip(ours.layers, library.layers, strict=True):
        assert counted.parameters == stated.parameters
        assert not counted.is_block or counted.forward_flops == stated.forward_flops
        assert counted.activation_bytes(1) == pytest.approx(stated.activation_bytes(1), rel=0.05)


def test_t5_equals_the_library() -> None:
    """An encoder-decoder has as many parameters as the library's model."""
    config = config_of("t5-small")
    with torch.device("meta"):
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(**config))
    ours = workload_of(sizes_from_config(config, "c"))
    assert ours.parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", ["BertModel", "BertForPreTraining", "BertForMaskedLM"])
def test_bert_equals_the_library(name: str) -> None:
    """Each of its models that is counted has as many parameters as the library's."""
    config = config_of("bert-base") | {"architectures": [name]}
    with torch.device("meta"):
        model = getattr(transformers, name)(transformers.BertConfig(**library_config(config)))
    model.tie_weights()
    ours = workload_of(sizes_from_config(config, "c"))
    assert ours.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_bug_an_architecture_that_the_library_lacks_was_counted_as_its_causal_model() -> None:
    """Unless its name says that it is one."""
    with pytest.raises(
        InstanceError, match=r"^c architectures: OurRewardModel; allowed: a model of"
    ):
        counted_from_config(NEOX | {"architectures": ["OurRewardModel"]}, "c")
    counted_from_config(NEOX | {"architectures": ["OurForCausalLM"]}, "c")


@pytest.mark.parametrize("model_type", [name for name in model_types() if name != "kimi_k2"])
def test_defaults_are_those_of_the_class(model_type: str) -> None:
    """Every default that is a number is the library's; what is derived is None here."""
    needed = {"num_experts_per_tok": 6} if model_type == "deepseek_v2" else {}
    built = transformers.AutoConfig.for_model(model_type, use_sliding_window=True, **needed)
    for key, value in model_types()[model_type].defaults.items():
        if value is not None and key not in UNDECLARED | {"use_sliding_window", "mlp_bias"}:
            assert getattr(built, key) == value, key


@pytest.mark.parametrize("model_type", [name for name in model_types() if name != "kimi_k2"])
def test_configs_that_the_library_saves_are_read(model_type: str) -> None:
    """No field of a saved config of a supported type is refused."""
    needed = {"num_experts_per_tok": 6} if model_type == "deepseek_v2" else {}
    heads = {"head_dim": 128} if model_type == "glm4_moe" else {}
    saved = transformers.AutoConfig.for_model(model_type, **needed, **heads).to_dict()
    sizes_from_config(saved, "c")
    assert model_types()[model_type].fields & set(saved)


def test_no_type_of_the_library_is_taken_for_another() -> None:
    """Of all architectures that the library knows, none is suggested another."""
    others = set(transformers.CONFIG_MAPPING) - set(model_types())
    assert {name for name in others if spelling_of(name, list(model_types()))} == set()


def test_other_types_are_counted() -> None:
    """A type without sizes here is counted from the library's model."""
    model = architecture_from_config(NEOX, "c")
    assert isinstance(model, CountedModel)
    block = 12 * 64**2 + 13 * 64
    assert workload_of(model).parameters == 2 * block + 2 * 64 + 2 * 100 * 64
    # 512 tokens: 2 per matrix parameter, scores 4 s^2 h
    flops = 2 * 512 * 12 * 64**2 + 4 * 512**2 * 64
    assert workload_of(model).layers[1].forward_flops == flops


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (NEOX | {"num_experts": 4}, "c num_experts: 4, which model_type gpt_neox does not have"),
        (NEOX | {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers: 1, modules that"),
        (NEOX | {"num_hidden_layers": 10**6}, "num_hidden_layers: 1000000; allowed: at most 10000"),
        (NEOX | {"hidden_size": "x"}, "c: transformers cannot build it: .*hidden_size"),
        ({"model_type": "bart"}, "model_type: 'bart'; allowed: a language model of one stack"),
        ({"model_type": "llava"}, "model_type: 'llava'; allowed: a language model of one stack"),
        ({"model_type": "zamba2"}, "Zamba2ForCausalLM with model.layers, whose blocks share"),
    ],
)
def test_what_cannot_be_counted(config: dict[str, object], message: str) -> None:
    """Fields that the class ignores and models of other forms are refused by name."""
    with pytest.raises(InstanceError, match=message):
        architecture_from_config(config, "c")


def test_fields_that_the_model_reads_undeclared() -> None:
    """A field that the class does not declare counts where the model reads it."""
    config = config_of("glm-4.5-air") | {"num_hidden_layers": 2}
    wide = counted_from_config(config, "c").parameters
    assert wide > counted_from_config(config | {"head_dim": 64}, "c").parameters
