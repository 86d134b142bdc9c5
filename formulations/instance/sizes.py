"""The sizes of a transformer, as a user writes them: the schema of `workload.sizes`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from formulations.instance.record import MOST_LAYERS, Name, Section

_MOST_WIDTH = 10**7
_MOST_EXPERTS = 10**5
_Positive = Annotated[float, Field(gt=0, le=1e12)]


def _require(fits: object, text: str) -> None:
    if not fits:
        raise ValueError(text)


class MoeSizes(Section):
    """Mixture of experts in place of the feed-forward network of a block."""

    experts: int = Field(ge=2, le=_MOST_EXPERTS)
    """Routed experts per block."""
    experts_per_token: int = Field(ge=1, le=_MOST_EXPERTS)
    """Routed experts that each token visits (top-k)."""
    ffn_size: int = Field(ge=1, le=_MOST_WIDTH)
    """Inner width of one expert."""
    shared_experts: int = Field(0, ge=0, le=_MOST_EXPERTS)
    """Experts that every token visits."""
    dense_first_layers: int = Field(0, ge=0, le=MOST_LAYERS)
    """First blocks with a plain feed-forward network of width `ffn_size` of the model (DeepSeek-V3:
    3); their layer kind is `dense_block`."""
    biases: bool = False
    """Biases of router and experts (gpt-oss)."""
    scores: Literal["softmax", "sigmoid"] | None = None
    """Of the router, for who launches the model; null: not known, as of all that follows."""
    normalized: bool | None = None
    """Do the weights of the experts that a token visits sum to 1?"""
    scale: _Positive | None = None
    """What these weights are multiplied by."""
    groups: int | None = Field(None, ge=1, le=_MOST_EXPERTS)
    """Groups of experts; null: all of them are one."""
    groups_per_token: int | None = Field(None, ge=1, le=_MOST_EXPERTS)
    """Groups whose experts a token may visit."""

    @model_validator(mode="after")
    def _top_k(self) -> Self:
        text = f"experts_per_token is {self.experts_per_token}, above experts {self.experts}"
        _require(self.experts_per_token <= self.experts, text)
        return self


class LatentAttentionSizes(Section):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

    query_rank: int | None = Field(None, ge=1, le=_MOST_WIDTH)
    """Rank of the queries; null: not compressed."""
    kv_rank: int = Field(ge=1, le=_MOST_WIDTH)
    """Rank of keys and values."""
    nope_head_dim: int = Field(ge=1, le=_MOST_WIDTH)
    """Width of a query or key head without rotary part."""
    rope_head_dim: int = Field(ge=1, le=_MOST_WIDTH)
    """Width of the rotary part; the keys' is shared by heads."""
    value_head_dim: int = Field(ge=1, le=_MOST_WIDTH)
    """Width of a value head."""


class WindowSizes(Section):
    """Attention to the last tokens only; flash attention leaves the other scores out."""

    tokens: int = Field(ge=1, le=10**9)
    """Keys that a query sees, its own included."""
    layers: list[int] | None = Field(None, max_length=MOST_LAYERS)
    """Blocks with the window, from 0; null: all. Where they cost less than the others of a model,
    their layer kind is `sliding_block`."""

    def covers(self, block: int) -> bool:
        """Whether the block has the window."""
        return self.layers is None or block in self.layers


class TransformerSizes(Section):
    """Everything about a transformer that costs depend on. Defaults are GPT-2's conventions.

    And what else a job says of it: `activation`, `norm_epsilon`, what is known of rotary positions,
    and of the router in `moe`; null: not known, as where nobody stated it.
    """

    hidden_size: int = Field(ge=1, le=_MOST_WIDTH)
    """Width of the residual stream."""
    layers: int = Field(ge=1, le=MOST_LAYERS)
    """Blocks; with `decoder_layers`, those of the encoder."""
    decoder_layers: int | None = Field(None, ge=1, le=MOST_LAYERS)
    """Decoder blocks with cross-attention; makes an encoder-decoder (T5)."""
    heads: int = Field(ge=1, le=_MOST_WIDTH)
    """Query heads per attention."""
    kv_heads: int | None = Field(None, ge=1, le=_MOST_WIDTH)
    """Key and value heads; null: as `heads`."""
    head_dim: int | None = Field(None, ge=1, le=_MOST_WIDTH)
    """Width of a head; null: hidden / heads."""
    latent_attention: LatentAttentionSizes | None = None
    """Latent attention; excludes `kv_heads` and `head_dim`."""
    window: WindowSizes | None = None
    """Sliding window of plain attention; null: all tokens."""
    attention_sinks: bool = False
    """A learned score per head beside the tokens' (gpt-oss)."""
    ffn_size: int | None = Field(None, ge=1, le=_MOST_WIDTH)
    """Inner width of the feed-forward network; null: 4 hidden."""
    gated_ffn: bool = False
    """Gated feed-forward network (SwiGLU, GEGLU): three matrices."""
    activation: Name | None = None
    """Of the feed-forward network, as `hidden_act` of a config.json: gelu, silu."""
    moe: MoeSizes | None = None
    """Mixture of experts."""
    vocabulary_size: int = Field(ge=1, le=10**9)
    """Rows of the embedding, before padding."""
    tied_embeddings: bool = True
    """Does the head use the embedding's matrix?"""
    learned_positions: int | None = Field(None, ge=1, le=10**9)
    """Rows of a learned position table."""
    rotary_positions: bool = False
    """Rotary positions (no parameters)."""
    rotary_base: _Positive | None = None
    """Base of their frequencies."""
    rotary_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of each head that is rotated."""
    rotary_scaling: dict[Name, bool | int | float | str | list[float] | None] | None = None
    """How they are stretched, as `rope_scaling` of a config.json."""
    relative_position_buckets: int | None = Field(None, ge=1, le=10**6)
    """Buckets of a bias per head on the scores (T5), one table per stack."""
    token_types: int = Field(0, ge=0, le=10**6)
    """Rows of a token type table (BERT: 2)."""
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """layernorm: weight and bias; rmsnorm: weight only."""
    norm_epsilon: _Positive | None = None
    """What norms add to the variance."""
    embedding_norm: bool = False
    """Norm after the embedding (BERT)."""
    final_norm: bool = True
    """Norm before the head (not in BERT)."""
    branch_norms: bool = False
    """Norms behind attention and feed-forward beside those before them (Gemma 2)."""
    qk_norms: bool = False
    """RMS norm of query and key heads (Qwen3)."""
    qk_norms_of_all_heads: bool = False
    """One norm over all query heads, one over all key heads (OLMo 2)."""
    qkv_biases: bool = True
    """Biases of the q, k and v projections."""
    output_bias: bool = True
    """Bias of attention's output projection."""
    ffn_biases: bool = True
    """Biases of the feed-forward network."""
    dropout: bool = True
    """Are masks of dropout kept? Yes where any of its rates is above 0."""
    pooler: bool = False
    """Dense layer over the first token (BERT)."""
    masked_lm_head: bool = False
    """Train with BERT's masked-token head and, if there is a pooler, its next-sentence
    classifier."""
    published_head: bool = False
    """Are these part of the published parameter count (BertForMaskedLM, BertForPreTraining)? That
    of BertModel leaves them out."""
    mtp_layers: int = Field(0, ge=0, le=100)
    """Train with so many multi-token prediction modules (DeepSeek-V3: 1), in the layer of the head;
    not part of the published parameter count."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        latent, window, odd = self.latent_attention, self.window, "an encoder-decoder has neither"
        alone, last = self.num_streams == 1, self.layers - 1
        divides = self.head_dim is not None or self.hidden_size % self.heads == 0
        shared = self.heads % self.num_kv_heads == 0
        dense = self.moe.dense_first_layers if self.moe else 0
        kinds = ("learned_positions", "rotary_positions", "relative_position_buckets")
        plain = self.kv_heads is None and self.head_dim is None
        one_kind = sum(bool(getattr(self, kind)) for kind in kinds) <= 1
        inside = all(0 <= block <= last for block in (window and window.layers) or [])
        heads = f"heads {self.heads} do not divide hidden_size {self.hidden_size}; give head_dim"
        kv_heads = f"kv_heads {self.num_kv_heads} do not divide heads {self.heads}"
        _require(plain or not latent, "latent_attention excludes kv_heads and head_dim")
        _require(not (window and latent), "latent_attention excludes window")
        _require(divides or latent, heads)
        _require(shared or latent, kv_heads)
        _require(alone or not (self.moe or latent), f"{odd} moe nor latent_attention")
        _require(alone or not (window or self.mtp_layers), f"{odd} window nor mtp_layers")
        _require(inside, f"window.layers are not all from 0 to {last}")
        _require(dense <= last + 1, f"moe.dense_first_layers is {dense}, above layers {last + 1}")
        _require(one_kind, f"more than one of {', '.join(kinds)}")
        return self

    @property
    def num_kv_heads(self) -> int:
        """Key and value heads."""
        return self.kv_heads or self.heads

    @property
    def num_experts(self) -> int:
        """Routed experts per block that has any; 0: none."""
        return self.moe.experts if self.moe else 0

    @property
    def width_per_head(self) -> int:
        """Width of one query, key or value head of plain attention."""
        return self.head_dim or self.hidden_size // self.heads

    @property
    def dense_ffn_size(self) -> int:
        """Inner width of a plain feed-forward network."""
        return self.ffn_size or 4 * self.hidden_size

    @property
    def causal(self) -> bool:
        """Whether no token sees later ones: decoders alone, unlike BERT and encoder-decoders."""
        encodes = self.masked_lm_head or self.token_types > 0
        return not encodes and self.decoder_layers is None

    @property
    def num_streams(self) -> int:
        """Token streams: 2 for an encoder-decoder, else 1."""
        return 1 if self.decoder_layers is None else 2
