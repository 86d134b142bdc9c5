"""Promises of formulations.instance.catalogue and of catalogue/workloads.yaml."""

from importlib.resources import files

import pytest
import yaml

from formulations.errors import InstanceError
from formulations.instance.catalogue import CatalogueEntry, workload_from_catalogue

_TEXT = (files("formulations.instance") / "catalogue" / "workloads.yaml").read_text("utf-8")
CATALOGUE: dict[str, object] = yaml.safe_load(_TEXT)

#: As Hugging Face counts them; gpt-145b: 145.6 billion in Narayanan et al. 2021, table 1, worked
#: out in the test below.
PUBLISHED = {
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "t5-small": 60_506_624,
    "t5-3b": 2_851_598_336,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "qwen2-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_404_352,
    "qwen3-30b-a3b": 30_532_122_624,
    "gpt-oss-20b": 20_914_757_184,
    "mistral-7b": 7_241_732_096,
    "gemma-7b": 8_537_680_896,
    "phi3-mini": 3_821_079_552,
    "olmo2-7b": 7_298_617_344,
    "glm-4.5-air": 106_852_245_504,
    "deepseek-v2-lite": 15_706_484_224,
    "kimi-k2": 1_026_408_209_408,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name: str) -> None:
    """The parameter count of a named workload equals the published model's."""
    assert workload_from_catalogue(CATALOGUE, name).parameters == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "layers", "hidden"), [("gpt-145b", 80, 12288), ("gpt3-175b", 96, 12288)]
)
def test_gpt_parameter_counts(name: str, layers: int, hidden: int) -> None:
    """A GPT has 12 h^2 + 13 h parameters per block, two tables and a final norm."""
    # Narayanan et al. 2021, equation 2: 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h))
    counted = layers * (12 * hidden**2 + 13 * hidden) + (51200 + 2048) * hidden + 2 * hidden
    assert workload_from_catalogue(CATALOGUE, name).parameters == counted


@pytest.mark.parametrize(
    ("name", "kv_heads"),
    [("gpt2-xl", 25), ("gpt2-xl-16-heads", 16), ("qwen2-7b", 4), ("deepseek-v3", 128)],
)
def test_workload_carries_the_heads_that_tensor_groups_share(name: str, kv_heads: int) -> None:
    """As in the published configs: grouped heads count groups, latent attention every head."""
    assert workload_from_catalogue(CATALOGUE, name).kv_heads == kv_heads


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_entry_has_a_source_and_builds(name: str) -> None:
    """Every entry states its source and becomes a workload of its own length and batch."""
    entry = CatalogueEntry.model_validate(CATALOGUE[name])
    workload = workload_from_catalogue(CATALOGUE, name)
    assert workload.source == entry.source
    assert workload.sequence_length == entry.sequence_length
    assert workload.global_batch == entry.global_batch


def test_length_and_batch_can_be_given() -> None:
    """Given figures replace the entry's."""
    workload = workload_from_catalogue(
        CATALOGUE,
        "bert-large",
        sequence_length=128,
        global_batch=32,
    )
    assert (workload.sequence_length, workload.global_batch) == (128, 32)


def test_unknown_name_lists_the_known_ones() -> None:
    """An unknown name is answered with close matches and all names."""
    with pytest.raises(InstanceError, match=r"'bert-lrage' \(did you mean bert-large.*gpt-145b"):
        workload_from_catalogue(CATALOGUE, "bert-lrage")
