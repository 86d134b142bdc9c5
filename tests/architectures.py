"""Sizes of published models that several tests count."""

from formulations.instance.sizes import MoeSizes, TransformerSizes

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
