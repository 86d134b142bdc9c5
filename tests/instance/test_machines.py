"""Promises of formulations.instance.machines: links and GPU types, and where figures come from."""

import pytest

from formulations.instance.documents import Place, parse_document
from formulations.instance.machines import GpuFile, Link, gpu_catalogue, gpu_type
from formulations.instance.validation import validated
from formulations.instance.workload import PRECISIONS, Precision
from formulations.units import parse_quantity
from tests.conftest import text_of
from tests.instance.resolved import MINIMAL, ONE_GPU, broken, parsed
from tests.recorded import Cases, digest, recorded

GPUS = gpu_catalogue()

PRINTED = dict(
    row.partition("#")[0].strip().split(" ", 1)
    for row in text_of("datasheets.txt").splitlines()
    if not row.startswith("#")
)

test_lines = broken("gpu_", "bandwidth", "link_", "unit", "too_much", "terms")


def test_figures_become_a_gpu_type() -> None:
    """In base units, with the capability that the precisions need, unless it is stated."""
    one = "1 TFLOP/s"
    peaks = {f"{{fp16: {one}}}": None, f"{{tf32: {one}}}": 8.0, f"{{bf16: {one}, fp8: {one}}}": 8.9}
    peaks[f"{{bf16: {one}}}\ncompute_capability: 9.0"] = 9.0
    for peak, capability in peaks.items():
        document = parse_document(ONE_GPU.replace("{fp16: 1 TFLOP/s}", peak), "gpu.yaml")
        gpu = gpu_type(validated(GpuFile, document), Place(document))
        # 8 Gbit/s are 10^9 B/s; from 8.0 on there is flash attention
        assert (gpu.half_peak, gpu.link.bandwidth_bytes_per_s) == (1e12, 1e9)
        assert (gpu.compute_capability, gpu.has_flash) == (capability, capability is not None)
        assert gpu.memory_source == gpu.source
    bare = parsed(MINIMAL.replace("Ethernet 40G", "40 Gbit/s")).cluster.groups[0].inter_node
    assert bare.source == "the instance; latency of 14 us: NCCL 2.19"


@recorded("machines")
def test_evidence_is_the_recorded_one() -> Cases:
    """Of GPUs that were fitted, or whose peaks are assumed, in every precision that they have."""
    odd = GPUS["B200"].but(assumed_peaks={"bf16": "a guess"})
    for gpu in (*map(GPUS.__getitem__, ("A10", "V100-16", "A100-80", "H100", "GB200")), odd):
        for precision in PRECISIONS:
            if precision in gpu.peak_flops:
                stated = gpu.peak_evidence(precision), gpu.efficiency_evidence(precision)
                peaks = [gpu.half_peak, gpu.peak_outside_blocks(precision)]
                yield (
                    f"{gpu.name} {len(gpu.assumed_peaks)} {precision}",
                    [*(evidence.kind for evidence in stated), digest(stated), *peaks],
                )


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp8"])
def test_bug_assumed_peaks_were_called_published(precision: Precision) -> None:
    """A peak that no source states has a kind of its own; fp8 rests on that of 16 bit too."""
    kind = "assumed" if precision == "fp32" else "published"
    assert GPUS["GB200"].peak_evidence(precision).kind == kind
    odd = GPUS["B200"].but(assumed_peaks={"bf16": "a guess"})
    assert odd.peak_evidence("fp8").source == "a guess"
    assert odd.peak_evidence("tf32").kind == "published"


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_has_sources_and_figures_that_fit(name: str) -> None:
    """Datasheet, sources of memory and efficiency; half the bits, twice the rate (to 3 %)."""
    gpu, peak = GPUS[name], GPUS[name].peak_flops
    measured = name in ("B200", "B300", "GB200", "GB300")
    assert (gpu.kind, gpu.link.kind) == ("published", "measured" if measured else "published")
    assert any(word in gpu.source for word in ("datasheet", "whitepaper", "brief", "quoted"))
    assert gpu.memory_source != gpu.source
    assert gpu.efficiency_source
    # A figure with sparsity among dense ones shows.
    if "bf16" in peak:
        assert peak["bf16"] == peak["fp16"]
        half = peak.get("tf32", peak["fp16"] / 2)  # AMD's older dies have no tf32
        assert peak["fp16"] == pytest.approx(2 * half, rel=0.03)
    if "fp8" in peak:
        assert peak["fp8"] == pytest.approx(2 * peak["fp16"], rel=0.03)
    assert ("bf16" in peak) == ((gpu.compute_capability or 0) >= 8)  # not before Ampere
    # Of the memory less can be allocated than is printed, by at most 10 %.
    if name in PRINTED:
        memory, _, rate = PRINTED[name].partition(", ")
        precision, _, figure = rate.partition(" ")
        assert peak[precision] == pytest.approx(parse_quantity(figure, "compute"))  # type: ignore[index]
        assert 0.9 < gpu.memory_bytes / parse_quantity(memory, "size") < 1
    # Half of what datasheets print for both directions.
    assert name != "A100-80" or gpu.link.bandwidth_bytes_per_s == 300e9


def test_rings_divide_a_link_that_they_share() -> None:
    """Two rings over PCIe at 16 GB/s have 8 GB/s each; over NVLink each has links of its own."""
    shared = Link(bandwidth_bytes_per_s=16e9, latency_s=5e-6, shared=True)
    rings = [(shared, 1, 16e9), (shared, 2, 8e9), (shared.but(shared=False), 2, 16e9)]
    for link, number, each in rings:
        assert link.of_rings(number).bandwidth_bytes_per_s == each
