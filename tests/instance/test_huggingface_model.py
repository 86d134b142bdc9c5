"""Promises of formulations.instance.huggingface_model.

They need the optional extra `transformers` and are skipped where it is missing.
"""

import json

import pytest

from formulations.errors import InstanceError
from formulations.instance.huggingface import model_types, sizes_from_config, spelling_of
from formulations.instance.huggingface_model import architecture_from_config, counted_from_config
from formulations.instance.transformer import CountedModel
from tests import architectures
from tests.architectures import CONFIGS, build, parsed_config
from tests.instance.test_huggingface import workload_of
from tests.refusals import refusals

REASON = "the optional extra `transformers` is not installed"
transformers = pytest.importorskip("transformers", reason=REASON)
torch = pytest.importorskip("torch", reason=REASON)

#: Models of one stack; T5 has two.
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json") if path.stem != "t5-small")
#: Types whose class the library has; kimi_k2 is its deepseek_v3.
TYPES = [name for name in model_types() if name != "kimi_k2"]
#: Read by our builders or by other implementations, not declared by the library's class.
UNDECLARED = {"experts_per_token", "max_window_layers", "moe_layer_freq"}
UNDECLARED |= {"num_nextn_predict_layers"}
UNDECLARED |= {"position_embedding_type", "sliding_window_pattern"}
#: A type without builder: 2 blocks of 4 h^2 and 8 h^2, biases 13 h, norms 4 h; final norm 2 h.
NEOX = {"model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 4}
NEOX |= {"num_hidden_layers": 2, "intermediate_size": 256, "vocab_size": 100}


def config_of(name: str) -> dict[str, object]:
    """A published config, without prediction modules, which the library does not build."""
    config = architectures.config_of(name)
    return config | ({"num_nextn_predict_layers": 0} if "n_routed_experts" in config else {})


def library_config(config: dict[str, object]) -> dict[str, object]:
    """What the library takes for the same model."""
    known = {key: value for key, value in config.items() if key not in UNDECLARED}
    if config["model_type"] == "bert":
        known["architectures"] = ["BertForPreTraining"]
    if config["model_type"] == "kimi_k2":
        known["model_type"] = "deepseek_v3"
    return known


@pytest.mark.parametrize("name", NAMES)
def test_supported_types_equal_the_library(name: str) -> None:
    """Parameters of every layer and FLOPs of every block are those of the library's model.

    What a block keeps is told from its matrices to 5 %.
    """
    config = config_of(name)
    library = build(counted_from_config(parsed_config(library_config(config))), 512)
    for stated, counted in zip(workload_of(config).layers, library.layers, strict=True):
        assert counted.parameters == stated.parameters
        assert not counted.is_block or counted.forward_flops == stated.forward_flops
        assert counted.activation_bytes(1) == pytest.approx(stated.activation_bytes(1), rel=0.05)


def test_bug_an_architecture_that_the_library_lacks_was_counted_as_its_causal_model() -> None:
    """Unless its name says that it is one."""
    line = r"^c architectures: OurRewardModel; allowed: a model of"
    with pytest.raises(InstanceError, match=line):
        counted_from_config(parsed_config(NEOX | {"architectures": ["OurRewardModel"]}))
    counted_from_config(parsed_config(NEOX | {"architectures": ["OurForCausalLM"]}))


@pytest.mark.parametrize("model_type", TYPES)
def test_defaults_and_fields_are_those_of_the_class(model_type: str) -> None:
    """Defaults that are numbers are the library's, derived ones None; saved configs are read."""
    table = model_types()[model_type]
    needed = {"num_experts_per_tok": 6} if model_type == "deepseek_v2" else {}
    built = transformers.AutoConfig.for_model(model_type, use_sliding_window=True, **needed)
    rotary = getattr(built, "rope_parameters", None) or {}
    elsewhere = {**rotary.get("full_attention", rotary)}
    elsewhere["hidden_act"] = getattr(built, "hidden_activation", None)
    for key, value in table.defaults.items():
        if value is not None and key not in UNDECLARED | {
            "mlp_bias",
            "rope_scaling",
            "use_sliding_window",
        }:
            assert (getattr(built, key) if hasattr(built, key) else elsewhere[key]) == value, key
    heads = {"head_dim": 128} if model_type == "glm4_moe" else {}
    saved = transformers.AutoConfig.for_model(model_type, **needed, **heads).to_dict()
    sizes_from_config(parsed_config(saved))
    assert table.fields & set(saved)


def test_no_type_of_the_library_is_taken_for_another() -> None:
    others = set(transformers.CONFIG_MAPPING) - set(model_types())
    assert {name for name in others if spelling_of(name, list(model_types()))} == set()


def test_other_types_are_counted() -> None:
    model = architecture_from_config(parsed_config(NEOX))
    assert isinstance(model, CountedModel)
    workload, block = build(model, 512), 12 * 64**2 + 13 * 64
    assert workload.parameters == 2 * block + 2 * 64 + 2 * 100 * 64
    # 512 tokens: 2 per matrix parameter, scores 4 s^2 h
    assert workload.layers[1].forward_flops == 2 * 512 * 12 * 64**2 + 4 * 512**2 * 64


@refusals("counted")
def test_what_cannot_be_counted(text: str, message: str) -> None:
    """Fields that the class ignores and models of other forms are refused by name."""
    config = json.loads(text)
    with pytest.raises(InstanceError, match=message):
        architecture_from_config(parsed_config(config if "model_type" in config else NEOX | config))
