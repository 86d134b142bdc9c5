"""Sizes of published models that several tests count, and their workloads."""

from functools import cache

from formulations.instance.sizes import (
    LatentAttentionSizes,
    MoeSizes,
    TransformerSizes,
    WindowSizes,
)
from formulations.instance.transformer import Architecture, build_workload
from formulations.instance.workload import Layer, OptimizerState, Precision, Workload

LLAMA_STYLE = TransformerSizes(
    hidden_size=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    ffn_size=14336,
    gated_ffn=True,
    vocabulary_size=32000,
    tied_embeddings=False,
    rotary_positions=True,
    norm="rmsnorm",
    qkv_biases=False,
    output_bias=False,
    ffn_biases=False,
    dropout=False,
)
LLAMA3 = LLAMA_STYLE.but(vocabulary_size=128256)
MIXTRAL = LLAMA_STYLE.but(moe=MoeSizes(experts=8, experts_per_token=2, ffn_size=14336))

GPT2 = TransformerSizes(
    hidden_size=768, layers=12, heads=12, vocabulary_size=50257, learned_positions=1024
)


T5_SMALL = TransformerSizes(
    hidden_size=512,
    layers=6,
    decoder_layers=6,
    heads=8,
    head_dim=64,
    ffn_size=2048,
    vocabulary_size=32128,
    relative_position_buckets=32,
    norm="rmsnorm",
    qkv_biases=False,
    output_bias=False,
    ffn_biases=False,
)


DEEPSEEK = LLAMA_STYLE.but(
    hidden_size=7168,
    layers=61,
    heads=128,
    kv_heads=None,
    latent_attention=LatentAttentionSizes(
        query_rank=1536, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128
    ),
    ffn_size=18432,
    moe=MoeSizes(
        experts=256,
        experts_per_token=8,
        ffn_size=2048,
        shared_experts=1,
        dense_first_layers=3,
    ),
)


def gpt(hidden: int, layers: int, heads: int, vocabulary: int, positions: int) -> TransformerSizes:
    """A GPT with 4h feed-forward network."""
    return TransformerSizes(
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        vocabulary_size=vocabulary,
        learned_positions=positions,
    )


def build(sizes: Architecture, s: int, flash: bool = False) -> Workload:
    """Workload of one batch of 8 sequences."""
    return build_workload(
        sizes,
        name="w",
        source="test",
        sequence_length=s,
        global_batch=8,
        flash_attention=flash,
    )


def layer(workload: Workload, kind: str) -> Layer:
    return next(item for item in workload.layers if item.kind == kind)


#: Parameters of the published models, as Hugging Face transformers counts them.
PUBLISHED = {
    "gpt2": 124_439_808,
    "llama2-7b": 6_738_415_616,
    "llama3-8b": 8_030_261_248,
    "qwen2-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_404_352,
    "bert-base": 109_482_240,
    "t5-small": 60_506_624,
}

#: Of the other supported types, as the library counts their models.
COUNTED = {
    "mistral-7b": 7_241_732_096,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-7b": 8_537_680_896,
    "gemma2-2b": 2_614_341_888,
    "gemma3-1b": 999_885_952,
    "phi3-mini": 3_821_079_552,
    "olmo2-7b": 7_298_617_344,
    "gpt-oss-20b": 20_914_757_184,
    "glm-4.5-air": 106_852_245_504,
    "deepseek-v2-lite": 15_706_484_224,
    "kimi-k2": 1_026_408_209_408,
}


@cache
def kinds_of_workloads() -> dict[str, Workload]:
    """Models of every kind in several formats, with flash attention and without."""
    latent = {"moe": None, "layers": 4, "mtp_layers": 2, "tied_embeddings": False}
    sizes = {"gpt2": GPT2, "llama3": LLAMA3, "mixtral": MIXTRAL, "t5": T5_SMALL}
    sizes |= {"deepseek": DEEPSEEK.but(mtp_layers=1), "latent": DEEPSEEK.but(**latent)}
    bert = {"token_types": 2, "embedding_norm": True, "final_norm": False}
    sizes["bert"] = GPT2.but(**bert, masked_lm_head=True, pooler=True)
    sizes["olmo"] = LLAMA3.but(qk_norms_of_all_heads=True, branch_norms=True, attention_sinks=True)
    sizes["qwen"] = MIXTRAL.but(qk_norms=True, window=WindowSizes(tokens=60, layers=[0, 1, 5]))
    biased = MoeSizes(experts=8, experts_per_token=2, ffn_size=64, biases=True, shared_experts=1)
    sizes["biased"] = MIXTRAL.but(moe=biased, qkv_biases=True, ffn_biases=True, dropout=True)
    formats: list[tuple[bool, Precision, OptimizerState]] = [
        (False, "fp32", "bf16"),
        (True, "bf16", "8bit"),
        (True, "fp8", "fp32"),
    ]
    return {
        f"{name} {precision}": build_workload(
            architecture,
            name="w",
            source="test",
            sequence_length=100,
            global_batch=8,
            flash_attention=flash,
            precision=precision,
            optimizer_state=state,
            fused_cross_entropy=flash,
        )
        for name, architecture in sizes.items()
        for flash, precision, state in formats
    }
