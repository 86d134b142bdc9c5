"""Layers in PyTorch: they are those of the cost model."""

import pytest

from formulations.instance.sizes import TransformerSizes
from tests.architectures import build

SMALL = {"hidden_size": 32, "layers": 2, "heads": 4, "vocabulary_size": 64, "ffn_size": 64}
LLAMA: dict[str, object] = {"kv_heads": 2, "gated_ffn": True, "rotary_positions": True}
LLAMA |= {"norm": "rmsnorm", "qkv_biases": False, "output_bias": False, "ffn_biases": False}
LLAMA |= {"dropout": False, "tied_embeddings": False}
BERT = {"token_types": 2, "embedding_norm": True, "final_norm": False, "masked_lm_head": True}
MODELS: dict[str, dict[str, object]] = {
    "gpt": {"learned_positions": 16},
    "llama": LLAMA,
    "qwen3": {**LLAMA, "qk_norms": True, "head_dim": 16},
    "olmo2": {**LLAMA, "qk_norms_of_all_heads": True},
    "gemma": {**LLAMA, "branch_norms": True},
    "bert": {"learned_positions": 16, **BERT},
}
REASON = "PyTorch is not installed (extra `torch`)"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("flash", [False, True])
def test_layers_have_the_parameters_that_are_counted(name: str, flash: bool) -> None:
    """On one GPU as many as the cost model's layers; both passes run at degrees 1 and 2."""
    torch = pytest.importorskip("torch", reason=REASON)
    from solver.measure.torch_layers import layers

    sizes = TransformerSizes.model_validate({**SMALL, **MODELS[name]})
    for layer in dict.fromkeys(build(sizes, 16, flash).layers):
        own = layer.sharded_parameters + layer.replicated_parameters
        matrix = layer.vocabulary_rows * layer.vocabulary_columns  # a copy if it is tied
        for tp in (1, 2):
            built = layers(sizes, tp, flash)[layer.kind]()
            if tp == 1:
                assert sum(p.numel() for p in built.parameters()) == own + matrix
            ids = torch.randint(64, (2, 16))
            taken = ids if layer.kind == "embedding" else torch.randn(2, 16, 32)
            built(taken).sum().backward()
            assert all(p.grad is not None for p in built.parameters())
