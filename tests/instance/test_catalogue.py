"""Promises of formulations.instance.catalogue, and of the figures in catalogue/*.yaml."""

import pytest

from formulations.errors import InstanceError
from formulations.instance import catalogue
from formulations.units import parse_quantity
from tests.architectures import PUBLISHED
from tests.conftest import text_of

GPUS = catalogue.gpu_catalogue()
WORKLOADS = catalogue.workload_catalogue()

PRINTED = dict(
    row.partition("#")[0].strip().split(" ", 1)
    for row in text_of("datasheets.txt").splitlines()
    if not row.startswith("#")
)


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


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_entry_has_a_source_and_its_published_parameters(name: str) -> None:
    entry, workload = WORKLOADS[name], WORKLOADS[name].workload(name)
    assert (workload.source, workload.sequence_length) == (entry.source, entry.sequence_length)
    assert workload.global_batch == entry.global_batch
    assert workload.parameters == PUBLISHED.get(name, workload.parameters)


def test_shares_that_hide_have_sources() -> None:
    for overlap in catalogue.overlap_catalogue().values():
        assert overlap.kind == "assumed"
        assert len(overlap.source) > 40


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InstanceError, match=r"'bert-lrage' \(did you mean bert-large.*gpt-145b"):
        catalogue.catalogue_entry("bert-lrage", "--model")
