"""Instance files that several tests of the loader start from."""

from pathlib import Path

from formulations.instance import Instance
from formulations.instance.catalogue import links_of
from formulations.instance.documents import parse_document
from formulations.instance.load import parse_instance
from tests.conftest import ROOT

DATA = ROOT / "tests" / "data"

MINIMAL = """
name: minimal
workload: {catalogue: bert-large}
cluster:
  groups:
    - {name: a, gpu: A100-40, gpus_per_node: 4, nodes: 2, inter_node: Ethernet 40G}
"""

#: A catalogue of one GPU type and its link.
ONE_GPU = """
gpus:
  X:
    peak: {fp16: 1 TFLOP/s}
    memory: 1 GiB
    memory_bandwidth: 1 GB/s
    link: L
efficiency:
  X: {}
"""
LINKS = links_of(
    parse_document("links: {L: {bandwidth: 8 Gbit/s, latency: 1 us, source: s}}", "links.yaml")
)

PROFILE = """
profile:
  source: invented
  includes_tensor_parallel_traffic: true
  backward_over_forward: 2.5
  times_ms:
    embedding: {A100-40: {1: {1: 0.5}, 2: {1: 0.5}}}
    block: {A100-40: {1: {1: 4, 2: [7.0, 9.0]}, 2: {1: 3}, 4: {1: 2}}}
    head: {A100-40: {1: {1: 1}, 2: {1: 1}}}
"""


def parsed(text: str, folder: Path = DATA) -> Instance:
    return parse_instance(text, "x.yaml", folder)
