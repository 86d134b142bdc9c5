"""Sizes from a `config.json`; data/huggingface: changes of one, and lines of errors."""

import json

import pytest

from formulations.instance.huggingface import config_from_sizes, model_types, sizes_from_config
from formulations.instance.huggingface_model import architecture_from_config, maximum_positions
from formulations.instance.resolve_workload import workload_catalogue
from formulations.instance.workload import Workload
from tests.architectures import CONFIGS, PUBLISHED, build, config_of, parsed_config
from tests.recorded import Cases, as_recorded, digest, recorded
from tests.refusals import refusal

#: With a config.json.
COUNTS = {name: n for name, n in PUBLISHED.items() if (CONFIGS / f"{name}.json").exists()}
REFUSED = (CONFIGS / "errors.txt").read_text(encoding="utf-8").splitlines()
CHANGES = (CONFIGS / "changes.txt").read_text(encoding="utf-8").splitlines()
#: Types whose class defaults describe a published model.
DEFAULTS = {
    **{"gpt2": "gpt2", "bert": "bert-base", "t5": "t5-small", "llama": "llama2-7b"},
    **{"mixtral": "mixtral-8x7b", "deepseek_v3": "deepseek-v3", "mistral": "mistral-7b"},
    **{"gemma": "gemma-7b", "gemma2": "gemma2-2b", "phi3": "phi3-mini"},
}


def workload_of(config: dict[str, object]) -> Workload:
    """Workload of a config at 512 tokens."""
    return build(sizes_from_config(parsed_config(config)), 512)


def test_bug_a_model_type_that_is_no_name_ended_in_a_traceback() -> None:
    config = parsed_config({"model_type": [1]})
    line = refusal(lambda: architecture_from_config(config))
    assert line.startswith("c model_type: [1]; allowed: gpt2, bert")


def trained(workload: Workload) -> int:
    return sum(layer.parameters for layer in workload.layers)


@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line.rpartition(" | ")[0][:60])
def test_bug_configs_of_models_that_are_not_counted_give_their_line(line: str) -> None:
    """Values out of range, fields of another model, other heads; no other architecture is meant."""
    name, change, expected = line.split(" | ")
    config = config_of(name, **json.loads(change))
    told = refusal(lambda: sizes_from_config(parsed_config(config)))
    assert told == expected.replace("{types}", ", ".join(model_types()))


@pytest.mark.parametrize("name", [*COUNTS, *DEFAULTS])
def test_published_parameter_counts(name: str) -> None:
    """Of a config the published model's exactly; the class defaults alone are a model, too."""
    config = config_of("", model_type=name) if name in DEFAULTS else config_of(name)
    assert workload_of(config).parameters == COUNTS[DEFAULTS.get(name, name)]


def all_configs() -> dict[str, dict[str, object]]:
    """Configs, class defaults alone, and changes."""
    configs = {name: config_of(name) for name in COUNTS}
    configs |= {f"{kind} alone": config_of("", model_type=kind) for kind in DEFAULTS}
    changes = (line.split(" | ") for line in CHANGES)
    return configs | {f"{n} {more}": config_of(n, **json.loads(more)) for n, more in changes}


@recorded("huggingface")
def test_sizes_are_the_recorded_ones() -> Cases:
    for name, config in all_configs().items():
        sizes = sizes_from_config(parsed_config(config))
        yield name, [digest(sizes), maximum_positions(parsed_config(config))]


def test_configs_are_written_from_sizes_of_decoders() -> None:
    """Of the first type that fits, whose sizes are read as these."""
    types = {}
    for name, entry in workload_catalogue().items():
        written = config_from_sizes(entry.sizes)
        types[name] = written and [written["model_type"], digest(written)]
    for name, config in all_configs().items():
        written = config_from_sizes(sizes_from_config(parsed_config(config)))
        assert (written is None) == (config["model_type"] in ("bert", "t5")), name
    as_recorded("written_configs", types)


def test_bug_bert_was_its_base_model_whatever_the_config_names() -> None:
    """`architectures` says what is counted, and whether pooler and classifier are trained.

    Transform 768^2 + 768, norm 2 * 768, output bias 30522, next sentence 2 * 768 + 2; without
    next sentence (1538) and pooler (768^2 + 768).
    """
    counts = {"BertModel": 109_482_240, "BertForPreTraining": 110_106_428}
    counts["BertForMaskedLM"] = 109_514_298
    for name, published in counts.items():
        config = config_of("bert-base", architectures=[name])
        whole = published if name == "BertForMaskedLM" else 110_106_428
        workload = workload_of(config)
        assert (workload.parameters, trained(workload)) == (published, whole)
        untied = workload_of(config | {"tie_word_embeddings": False})
        assert untied.parameters == published + 30522 * 768 * (name != "BertModel")


def test_t5_with_a_head_of_its_own() -> None:
    """google/t5-v1_1-small and flan-t5-small, as published: 76,961,152, of them 32128 * 512."""
    changes = {"d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
    config = config_of("t5-small", **changes, num_decoder_layers=8)
    assert workload_of(config | {"tie_word_embeddings": False}).parameters == 76_961_152
    assert workload_of(config).parameters == 76_961_152 - 32128 * 512


def test_bug_multi_token_prediction_was_ignored() -> None:
    """The layer of the head trains the modules, which the published count leaves out."""
    # h = 7168: block 11507286016, join 2 h^2 = 102760448, two norms and the final one 3 h = 21504
    with_module = workload_of(config_of("deepseek-v3"))
    without = workload_of(config_of("deepseek-v3", num_nextn_predict_layers=0))
    assert with_module.parameters == without.parameters == PUBLISHED["deepseek-v3"]
    assert trained(with_module) == trained(without) + 11_507_286_016 + 102_760_448 + 21_504
    assert with_module.layers[-1].forward_flops > 2 * without.layers[-1].forward_flops
