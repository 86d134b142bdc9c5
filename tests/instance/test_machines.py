"""Promises of formulations.instance.machines: links and GPU types, and where figures come from."""

import pytest

from formulations.instance.catalogue import gpu_catalogue, gpus_of
from formulations.instance.documents import parse_document
from formulations.instance.machines import LinkFile, Spot, as_link
from formulations.instance.workload import Precision
from tests.instance_texts import LINKS, ONE_GPU, parsed

GPUS = gpu_catalogue()


def test_figures_become_a_gpu_type() -> None:
    """A file's texts become numbers in base units: 8 Gbit/s are 10^9 B/s."""
    gpu = gpus_of(parse_document(ONE_GPU, "gpus.yaml"), LINKS)["X"]
    assert (gpu.peak_flops, gpu.memory_bytes) == ({"fp16": 1e12}, 2**30)
    assert gpu.link.bandwidth_bytes_per_s == 1e9
    assert gpu.link.latency_s == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("peak", "capability"),
    [
        ("{fp16: 1 TFLOP/s}", None),
        ("{fp16: 1 TFLOP/s, bf16: 1 TFLOP/s}", 8.0),
        ("{tf32: 1 TFLOP/s}", 8.0),
        ("{bf16: 1 TFLOP/s, fp8: 1 TFLOP/s}", 8.9),
        ("{bf16: 1 TFLOP/s}\n    compute_capability: 9.0", 9.0),
    ],
)
def test_capability_is_what_the_precisions_need(peak: str, capability: float | None) -> None:
    """Unless it is stated; from 8.0 on there is flash attention."""
    text = ONE_GPU.replace("{fp16: 1 TFLOP/s}", peak)
    gpu = gpus_of(parse_document(text, "gpus.yaml"), LINKS)["X"]
    assert gpu.compute_capability == capability
    assert gpu.has_flash == (capability is not None)
    assert gpu.memory_source == gpu.source


def test_half_sizes_hold_for_16_bit() -> None:
    """Else for what comes next; fp8 leaves attention and head in 16 bit."""
    gpu = GPUS["H100"].but(peak_flops={"fp32": 1.0, "tf32": 2.0, "bf16": 3.0, "fp8": 4.0})
    assert gpu.half_peak == 3.0
    assert (gpu.peak_outside_blocks("fp8"), gpu.peak_outside_blocks("fp32")) == (3.0, 1.0)
    assert gpu.but(peak_flops={"fp32": 1.0, "tf32": 2.0}).half_peak == 2.0


def test_latency_is_that_of_a_ring_unless_it_is_written() -> None:
    """And the source says so."""
    written = LinkFile(bandwidth_bytes_per_s=1.0)
    link = as_link(written, 5.7e-6)
    assert (link.latency_s, link.source) == (5.7e-6, "the instance; latency of 5.7 us: NCCL 2.19")
    stated = as_link(LinkFile(bandwidth_bytes_per_s=1.0, latency_s=0.0), 5.7e-6)
    assert (stated.latency_s, stated.source) == (0.0, "the instance")
    assert as_link(stated, 1.0) == stated
    assert not Spot(price_usd_per_hour=1.0, preemptions_per_hour=0.0).only


def test_a_link_may_be_a_bandwidth_alone() -> None:
    """Its latency is that of NCCL's rings, and its source says so."""
    instance = parsed(
        """
name: links
workload: {catalogue: bert-large}
cluster:
  groups:
    - {name: a, gpu: A10, gpus_per_node: 4, nodes: 2, intra_node: 128 Gbit/s, inter_node: 2 GB/s}
"""
    )
    group = instance.cluster.groups[0]
    assert (group.intra_node.bandwidth_bytes_per_s, group.intra_node.latency_s) == (16e9, 5.7e-6)
    assert (group.inter_node.bandwidth_bytes_per_s, group.inter_node.latency_s) == (2e9, 14e-6)
    assert group.inter_node.source == "the instance; latency of 14 us: NCCL 2.19"


@pytest.mark.parametrize(
    ("name", "precision", "kind", "source"),
    [
        ("GB200", "fp32", "assumed", "between the 75 and 90 TFLOP/s that are quoted"),
        ("GB200", "bf16", "published", GPUS["GB200"].source),
        ("GB200", "fp8", "published", GPUS["GB200"].source),
    ],
)
def test_bug_assumed_peaks_were_called_published(
    name: str, precision: Precision, kind: str, source: str
) -> None:
    """A peak that no source states has a kind of its own."""
    found = GPUS[name].peak_evidence(precision)
    assert (found.kind, found.source) == (kind, source)


def test_fp8_rests_on_16_bit_too() -> None:
    """Attention and head stay there: a peak of 16 bit that is assumed is one of fp8."""
    odd = GPUS["B200"].but(assumed_peaks={"bf16": "a guess"})
    assert odd.peak_evidence("fp8").source == "a guess"
    assert odd.peak_evidence("tf32").kind == "published"


def test_measured_efficiency_names_what_of_it_is_assumed() -> None:
    """In a precision that was fitted; in others all is assumed."""
    assert GPUS["A10"].efficiency_evidence("bf16").assumed == ("attention", "experts", "memory")
    assert GPUS["A10"].efficiency_evidence("fp32").assumed == ()
    for gpu in GPUS.values():
        borrowed = ("the rest as", "FASOP's hosts", "as V100-16")
        odd = any(words in gpu.efficiency_source for words in borrowed)
        assert bool(gpu.assumed_efficiency) == (odd and bool(gpu.measured_in))
