"""Promises of formulations.instance.machines: links and GPU types, and where figures come from."""

import pytest

from formulations.instance.catalogue import gpu_catalogue, gpus_of
from formulations.instance.documents import parse_document
from formulations.instance.workload import Precision
from tests.instance_texts import LINKS, MINIMAL, ONE_GPU, parsed

GPUS = gpu_catalogue()


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
def test_figures_become_a_gpu_type(peak: str, capability: float | None) -> None:
    """In base units, with the capability that the precisions need, unless it is stated."""
    text = ONE_GPU.replace("{fp16: 1 TFLOP/s}", peak)
    gpu = gpus_of(parse_document(text, "gpus.yaml"), LINKS)["X"]
    assert (gpu.half_peak, gpu.memory_bytes) == (1e12, 2**30)
    # 8 Gbit/s are 10^9 B/s
    assert gpu.link.bandwidth_bytes_per_s == 1e9
    assert gpu.link.latency_s == pytest.approx(1e-6)
    # from 8.0 on there is flash attention
    assert (gpu.compute_capability, gpu.has_flash) == (capability, capability is not None)
    assert gpu.memory_source == gpu.source


def test_half_sizes_hold_for_16_bit() -> None:
    """Else for what comes next; fp8 leaves attention and head in 16 bit."""
    gpu = GPUS["H100"].but(peak_flops={"fp32": 1.0, "tf32": 2.0, "bf16": 3.0, "fp8": 4.0})
    assert gpu.half_peak == 3.0
    assert (gpu.peak_outside_blocks("fp8"), gpu.peak_outside_blocks("fp32")) == (3.0, 1.0)
    assert gpu.but(peak_flops={"fp32": 1.0, "tf32": 2.0}).half_peak == 2.0


def test_a_link_may_be_a_bandwidth_alone() -> None:
    """Its latency is that of NCCL's rings, and its source says so; a stated one stays."""
    inner = "nodes: 2, intra_node: 128 Gbit/s, inter_node: 2 GB/s"
    group = parsed(MINIMAL.replace("nodes: 2, inter_node: Ethernet 40G", inner)).cluster.groups[0]
    assert (group.intra_node.bandwidth_bytes_per_s, group.intra_node.latency_s) == (16e9, 5.7e-6)
    assert (group.inter_node.bandwidth_bytes_per_s, group.inter_node.latency_s) == (2e9, 14e-6)
    assert group.inter_node.source == "the instance; latency of 14 us: NCCL 2.19"
    stated = MINIMAL.replace("Ethernet 40G", "{bandwidth: 8 Gbit/s, latency: 0 s}")
    link = parsed(stated).cluster.groups[0].inter_node
    assert (link.latency_s, link.source) == (0.0, "the instance")


@pytest.mark.parametrize(
    ("precision", "kind", "source"),
    [
        ("fp32", "assumed", "between the 75 and 90 TFLOP/s that are quoted"),
        ("bf16", "published", GPUS["GB200"].source),
        ("fp8", "published", GPUS["GB200"].source),
    ],
)
def test_bug_assumed_peaks_were_called_published(
    precision: Precision, kind: str, source: str
) -> None:
    """A peak that no source states has a kind of its own; fp8 rests on that of 16 bit too."""
    stated = GPUS["GB200"].peak_evidence(precision)
    assert (stated.kind, stated.source) == (kind, source)
    odd = GPUS["B200"].but(assumed_peaks={"bf16": "a guess"})
    assert odd.peak_evidence("fp8").source == "a guess"
    assert odd.peak_evidence("tf32").kind == "published"


def test_measured_efficiency_names_what_of_it_is_assumed() -> None:
    """In a precision that was fitted; in others all is assumed."""
    assert GPUS["A10"].efficiency_evidence("bf16").assumed == ("attention", "experts", "memory")
    assert GPUS["A10"].efficiency_evidence("fp32").assumed == ()
