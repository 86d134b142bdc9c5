"""Sizes of published models that several tests count, and their workloads."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from formulations.instance.huggingface import Config, sizes_from_config
from formulations.instance.sizes import MoeSizes, TransformerSizes, WindowSizes
from formulations.instance.transformer import Architecture, build_workload
from formulations.instance.workload import Layer, Workload
from tests.conftest import ROOT

CONFIGS = ROOT / "tests" / "data" / "huggingface"
#: Parameters as Hugging Face transformers counts them; of gpt-145b and gpt3-175b by equation 2 of
#: Narayanan et al. 2021, with 51,200 words and 2,048 positions.
PUBLISHED = {
    name: int(count)
    for name, count in map(str.split, (CONFIGS / "parameters.txt").read_text().splitlines())
}


def parsed_config(fields: Mapping[str, object]) -> Config:
    """A config.json that is called c in errors."""
    return Config(fields, lambda path: " ".join(("c", *path)))


def config_of(name: str, **changes: object) -> dict[str, object]:
    """The config.json of a model, with changes; of no name these alone."""
    base = json.loads((CONFIGS / f"{name}.json").read_text("utf-8")) if name else {}
    return {**base, **changes}


def _published(name: str, **changes: object) -> TransformerSizes:
    sizes = sizes_from_config(parsed_config(config_of(name)))
    assert isinstance(sizes, TransformerSizes)
    return sizes.but(**changes)


GPT2, LLAMA3, MIXTRAL = map(_published, ("gpt2", "llama3-8b", "mixtral-8x7b"))
T5_SMALL, DEEPSEEK = _published("t5-small"), _published("deepseek-v3", vocabulary_size=32000)


def gpt(hidden: int, layers: int, heads: int, vocabulary: int, positions: int) -> TransformerSizes:
    """A GPT with 4h feed-forward network."""
    return TransformerSizes(
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        vocabulary_size=vocabulary,
        learned_positions=positions,
    )


def build(sizes: Architecture, s: int, flash: bool = False, **fields: Any) -> Workload:
    """Workload of one batch of 8 sequences of so many tokens."""
    fields = {"name": "w", "source": "test", "global_batch": 8, **fields}
    return build_workload(sizes, sequence_length=s, flash_attention=flash, **fields)


def layer(workload: Workload, kind: str) -> Layer:
    return next(item for item in workload.layers if item.kind == kind)


@cache
def kinds_of_workloads() -> dict[str, Workload]:
    """Models of every kind in several formats, with flash attention and without."""
    latent = {"moe": None, "layers": 4, "mtp_layers": 2, "tied_embeddings": False}
    latent |= {"qkv_biases": True}
    sizes = {"gpt2": GPT2, "llama3": LLAMA3, "mixtral": MIXTRAL, "t5": T5_SMALL}
    sizes |= {"deepseek": DEEPSEEK, "latent": DEEPSEEK.but(**latent)}
    bert = {"token_types": 2, "embedding_norm": True, "final_norm": False}
    sizes["bert"] = GPT2.but(**bert, masked_lm_head=True, pooler=True)
    sizes["olmo"] = LLAMA3.but(qk_norms_of_all_heads=True, branch_norms=True, attention_sinks=True)
    sizes["qwen"] = MIXTRAL.but(qk_norms=True, window=WindowSizes(tokens=60, layers=[0, 1, 5]))
    biased = MoeSizes(experts=8, experts_per_token=2, ffn_size=64, biases=True, shared_experts=1)
    sizes["biased"] = MIXTRAL.but(moe=biased, qkv_biases=True, ffn_biases=True, dropout=True)
    all_formats: list[tuple[bool, dict[str, Any]]] = [
        (False, {"precision": "fp32", "optimizer_state": "bf16", "fused_cross_entropy": False}),
        (True, {"precision": "bf16", "optimizer_state": "8bit", "fused_cross_entropy": True}),
        (True, {"precision": "fp8", "optimizer_state": "fp32", "fused_cross_entropy": True}),
    ]
    return {
        f"{name} {formats['precision']}": build(architecture, 100, flash, **formats)
        for name, architecture in sizes.items()
        for flash, formats in all_formats
    }
