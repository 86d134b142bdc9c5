"""A small instance of mixed lengths, for tests of its strategies."""

from functools import cache
from pathlib import Path

from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.lengths.row_times import PlanRows
from solver.lengths.candidates import found_strategies

SMALL = """
name: small
workload: {name: tiny, sizes: SIZES}
cluster:
  groups:
    - {name: a, gpu: A100-40, gpus_per_node: 4, nodes: 1, inter_node: EFA 4x100G}
search: {zero: 1}
lengths:
  histogram: [{up_to: 512, count: 40}, {up_to: 2048, count: 6}, {up_to: 8000, count: 2}]
"""
SIZES = (
    "{hidden_size: 2048, layers: 8, heads: 16, ffn_size: 5504, gated_ffn: true,"
    " vocabulary_size: 32000, tied_embeddings: false, rotary_positions: true, norm: rmsnorm,"
    " dropout: false}"
)
OTHER_NODE = "    - {name: b, gpu: A10, gpus_per_node: 4, nodes: 1, inter_node: EFA 4x100G}\nsearch"


def small(**changes: str) -> Instance:
    """The instance, with texts replaced."""
    text = SMALL.replace("SIZES", SIZES)
    for old, new in changes.items():
        text = text.replace(old, new)
    return parse_instance(text, "small.yaml", Path())


@cache
def mixed_strategies() -> tuple[Instance, list[PlanRows]]:
    """The same with a node of slower and smaller GPUs beside, and its strategies."""
    instance = small(search=OTHER_NODE)
    return instance, found_strategies(instance, lambda done, total: None)
