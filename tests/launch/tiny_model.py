"""A model with torchtitan's module names, small enough for CPU processes."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

WIDTH, WORDS, LENGTH = 8, 16, 4


class Tiny(nn.Module):  # type: ignore[misc,unused-ignore]  # torch may be absent
    """Embedding, residual blocks, norm, head; parts that are taken out are left out."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.tok_embeddings: nn.Module | None = nn.Embedding(WORDS, WIDTH)
        layers = {str(i): nn.Linear(WIDTH, WIDTH) for i in range(blocks)}
        self.layers = nn.ModuleDict(layers)
        self.norm: nn.Module | None = nn.LayerNorm(WIDTH)
        self.lm_head: nn.Module | None = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.tok_embeddings is not None:
            x = self.tok_embeddings(x)
        for layer in self.layers.values():
            x = x + torch.tanh(layer(x))
        if self.norm is not None and self.lm_head is not None:
            x = self.lm_head(self.norm(x))
        return x


def kept(model: Tiny, names: Sequence[str]) -> Tiny:
    part = copy.deepcopy(model)
    for name in ("tok_embeddings", "norm", "lm_head"):
        if name not in names:
            setattr(part, name, None)
    for key in list(part.layers):
        if f"layers.{key}" not in names:
            del part.layers[key]
    return part


def batch(micro_batches: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = (micro_batches, LENGTH)
    tokens, targets = torch.randint(0, WORDS, (2, *sizes), generator=generator)
    return tokens, targets


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy, summed, so that micro-batches add up."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
