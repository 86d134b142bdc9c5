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
