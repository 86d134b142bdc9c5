"""The layers of a transformer in PyTorch, as one GPU of a tensor-parallel group holds them.

Of each part what `formulations.instance.parts` counts: heads, feed-forward network and vocabulary
by 1 / tp, norms and what follows a row-parallel product whole; nothing is sent. Where the norms of
a block stand does not change its time: here before attention and feed-forward, or around both.
Small things that the cost model leaves out too: layers over the first token alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from formulations.instance.sizes import TransformerSizes

_DROPOUT = 0.1
_ROTARY_BASE = 10_000.0


def layers(sizes: TransformerSizes, tp: int, flash: bool) -> dict[str, Callable[[], nn.Module]]:
    """What builds the layer of each kind of the chain."""
    return {
        "embedding": lambda: Embedding(sizes, tp),
        "block": lambda: Block(sizes, tp, flash),
        "head": lambda: Head(sizes, tp),
    }


def _norm(sizes: TransformerSizes, used: bool = True) -> nn.Module:
    norm = nn.LayerNorm if sizes.norm == "layernorm" else nn.RMSNorm
    return norm(sizes.hidden_size) if used else nn.Identity()


def _dropout(sizes: TransformerSizes) -> nn.Module:
    return nn.Dropout(_DROPOUT) if sizes.dropout else nn.Identity()


class Embedding(nn.Module):
    """Token ids [b, s] -> [b, s, h]; the vocabulary is split."""

    def __init__(self, sizes: TransformerSizes, tp: int) -> None:
        super().__init__()
        h = sizes.hidden_size
        self.tokens = nn.Embedding(-(-sizes.vocabulary_size // tp), h)
        rows = (sizes.learned_positions, sizes.token_types)
        self.tables = nn.ModuleList(nn.Embedding(count, h) for count in rows if count)
        self.norm, self.dropout = _norm(sizes, sizes.embedding_norm), _dropout(sizes)

    def forward(self, ids: Tensor) -> Tensor:
        """Sum of all tables."""
        places = torch.arange(ids.shape[1], device=ids.device)
        embedded = self.tokens(ids % self.tokens.num_embeddings)
        for table in self.tables:
            embedded = embedded + table(places % table.num_embeddings)
        out: Tensor = self.dropout(self.norm(embedded))
        return out


class Attention(nn.Module):
    """[b, s, h] -> [b, s, h] by heads / tp query heads in groups, fused or with its scores."""

    def __init__(self, sizes: TransformerSizes, tp: int, flash: bool) -> None:
        super().__init__()
        self.sizes, self.flash, self.width = sizes, flash, sizes.width_per_head
        self.heads, self.groups = sizes.heads // tp, sizes.num_kv_heads // tp
        q, kv = self.heads * self.width, self.groups * self.width
        self.split = [q, kv, kv]
        self.inputs = nn.Linear(sizes.hidden_size, q + 2 * kv, bias=sizes.qkv_biases)
        self.output = nn.Linear(q, sizes.hidden_size, bias=sizes.output_bias)
        over_all_heads = sizes.qk_norms_of_all_heads
        widths = (q, kv) if over_all_heads else (self.width,) * 2
        normed = over_all_heads or sizes.qk_norms
        self.norms = nn.ModuleList(
            nn.RMSNorm(width) if normed else nn.Identity() for width in widths
        )
        self.dropout = _dropout(sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Queries, keys and values in one product."""
        b, s, _ = x.shape
        q, k, v = self.inputs(x).split(self.split, dim=-1)
        q, k = self._normed(q, 0), self._normed(k, 1)
        q, k, v = (t.reshape(b, s, -1, self.width).transpose(1, 2) for t in (q, k, v))
        if self.sizes.rotary_positions:
            q, k = _rotated(q), _rotated(k)
        weighted = self._fused(q, k, v) if self.flash else self._scored(q, k, v)
        out: Tensor = self.output(weighted.transpose(1, 2).reshape(b, s, -1))
        return out

    def _normed(self, x: Tensor, which: int) -> Tensor:
        """By one norm over all heads, or the same over each."""
        apart = self.sizes.qk_norms and not self.sizes.qk_norms_of_all_heads
        shaped = x.unflatten(-1, (-1, self.width)) if apart else x
        return self.norms[which](shaped).reshape(x.shape)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            dropout_p=_DROPOUT if self.sizes.dropout else 0.0,
            is_causal=self.sizes.causal,
            enable_gqa=self.groups < self.heads,
        )

    def _scored(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        again = self.heads // self.groups
        k, v = (t.repeat_interleave(again, dim=1) if again > 1 else t for t in (k, v))
        scores = q @ k.transpose(-2, -1) * self.width**-0.5
        if self.sizes.causal:
            s = q.shape[-2]
            hidden = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        out: Tensor = self.dropout(scores.softmax(-1)) @ v
        return out


def _rotated(x: Tensor) -> Tensor:
    """Rotary positions of [b, heads, s, d] (Su et al. 2021); an odd last column stays."""
    s, half = x.shape[-2], x.shape[-1] // 2
    rates = _ROTARY_BASE ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(s, device=x.device)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


class FeedForward(nn.Module):
    """[b, s, h] -> [b, s, h] by 1 / tp of the inner width."""

    def __init__(self, sizes: TransformerSizes, tp: int) -> None:
        super().__init__()
        h, width = sizes.hidden_size, sizes.dense_ffn_size // tp
        self.gated = sizes.gated_ffn
        self.inner = nn.Linear(h, width * (2 if self.gated else 1), bias=sizes.ffn_biases)
        self.outer = nn.Linear(width, h, bias=sizes.ffn_biases)

    def forward(self, x: Tensor) -> Tensor:
        """GELU, or its gate times the other half."""
        inner = self.inner(x)
        if self.gated:
            gate, value = inner.chunk(2, dim=-1)
            inner = F.silu(gate) * value
        else:
            inner = F.gelu(inner, approximate="tanh")
        out: Tensor = self.outer(inner)
        return out


class Block(nn.Module):
    """Attention and feed-forward network, each with norm, dropout and residual."""

    def __init__(self, sizes: TransformerSizes, tp: int, flash: bool) -> None:
        super().__init__()
        self.branches = nn.ModuleList((Attention(sizes, tp, flash), FeedForward(sizes, tp)))
        self.before = nn.ModuleList(_norm(sizes) for _ in self.branches)
        self.behind = nn.ModuleList(_norm(sizes, sizes.branch_norms) for _ in self.branches)
        self.dropout = _dropout(sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Both branches."""
        for branch, before, behind in zip(self.branches, self.before, self.behind, strict=True):
            x = x + self.dropout(behind(branch(before(x))))
        return x


class Head(nn.Module):
    """[b, s, h] -> loss over 1 / tp of the vocabulary, in fp32."""

    def __init__(self, sizes: TransformerSizes, tp: int) -> None:
        super().__init__()
        h, rows = sizes.hidden_size, -(-sizes.vocabulary_size // tp)
        self.norm = _norm(sizes, sizes.final_norm)
        transform = (nn.Linear(h, h), nn.GELU(), _norm(sizes)) if sizes.masked_lm_head else ()
        self.transform = nn.Sequential(*transform)
        self.projection = nn.Linear(h, rows, bias=sizes.masked_lm_head)

    def forward(self, x: Tensor) -> Tensor:
        """Cross-entropy to some tokens."""
        logits = self.projection(self.transform(self.norm(x))).flatten(0, 1).float()
        targets = torch.arange(logits.shape[0], device=x.device) % logits.shape[1]
        return F.cross_entropy(logits, targets)
