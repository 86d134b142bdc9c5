"""Promises of formulations.instance.machines: links and GPU types, and where figures come from."""

import pytest

from formulations.instance.catalogue import gpu_catalogue, gpus_of
from formulations.instance.documents import parse_document
from formulations.instance.workload import PRECISIONS, Precision
from tests.instance.resolved import broken
from tests.instance_texts import LINKS, ONE_GPU
from tests.recorded import as_recorded, digest

GPUS = gpu_catalogue()

test_lines = broken("gpu_", "bandwidth", "link_", "unit", "too_much", "terms")


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
    # from 8.0 on there is flash attention
    assert (gpu.compute_capability, gpu.has_flash) == (capability, capability is not None)
    assert gpu.memory_source == gpu.source


def test_evidence_is_the_recorded_one() -> None:
    """Of GPUs that were fitted, or whose peaks are assumed, in every precision that they have."""
    odd = GPUS["B200"].but(assumed_peaks={"bf16": "a guess"})
    figures: dict[str, object] = {}
    for gpu in (*map(GPUS.__getitem__, ("A10", "V100-16", "A100-80", "H100", "GB200")), odd):
        for precision in PRECISIONS:
            if precision in gpu.peak_flops:
                stated = gpu.peak_evidence(precision), gpu.efficiency_evidence(precision)
                peaks = [gpu.half_peak, gpu.peak_outside_blocks(precision)]
                figures[f"{gpu.name} {len(gpu.assumed_peaks)} {precision}"] = [
                    *(evidence.kind for evidence in stated),
                    digest(stated),
                    *peaks,
                ]
    as_recorded("machines", figures)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp8"])
def test_bug_assumed_peaks_were_called_published(precision: Precision) -> None:
    """A peak that no source states has a kind of its own; fp8 rests on that of 16 bit too."""
    kind = "assumed" if precision == "fp32" else "published"
    assert GPUS["GB200"].peak_evidence(precision).kind == kind
    odd = GPUS["B200"].but(assumed_peaks={"bf16": "a guess"})
    assert odd.peak_evidence("fp8").source == "a guess"
    assert odd.peak_evidence("tf32").kind == "published"
