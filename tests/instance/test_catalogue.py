"""Promises of formulations.instance.catalogue, and of the figures in catalogue/*.yaml."""

import pytest

from formulations.errors import InstanceError
from formulations.instance.catalogue import (
    catalogue_entry,
    gpu_catalogue,
    gpus_of,
    workload_catalogue,
)
from formulations.instance.documents import parse_document
from formulations.instance.workload import Precision
from tests.architectures import COUNTED, PUBLISHED
from tests.instance_texts import LINKS, ONE_GPU

GPUS = gpu_catalogue()
WORKLOADS = workload_catalogue()

#: GiB that datasheets print, in the GB of 2^30 bytes that GPU memory is built in; a dense peak in
#: TFLOP/s, where the comment has the one with sparsity that is printed, if any.
PRINTED: dict[str, tuple[int, Precision, float]] = {
    "V100-16": (16, "fp16", 125),
    "V100-32": (32, "fp16", 125),
    "T4": (16, "fp16", 65),
    "RTX-3090": (24, "fp16", 71),  # 142; and 142 dense only with FP16 accumulation
    "A10": (24, "bf16", 125),  # 250
    "A10G": (24, "bf16", 70),  # 140
    "A40": (48, "bf16", 149.7),  # 299.4
    "A100-40": (40, "bf16", 312),  # 624
    "A100-80": (80, "tf32", 156),  # 312
    "A800-80": (80, "bf16", 312),
    "L4": (24, "fp8", 242.5),  # 485
    "L40S": (48, "bf16", 362.05),  # 733
    "H100": (80, "bf16", 989.5),  # 1979
    "H200": (141, "fp8", 1979),  # 3958
    "B200": (180, "bf16", 2250),  # 4500
}


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_has_sources_and_peaks_that_fit(name: str) -> None:
    """Datasheet, sources of memory and efficiency; half the bits, twice the rate (to 3 %)."""
    gpu, peak = GPUS[name], GPUS[name].peak_flops
    assert gpu.kind == "published"
    measured = name in ("B200", "B300", "GB200", "GB300")
    assert gpu.link.kind == ("measured" if measured else "published")
    assert any(word in gpu.source for word in ("datasheet", "whitepaper", "brief", "quoted"))
    assert gpu.memory_source != gpu.source
    assert gpu.efficiency_source
    # A figure with sparsity among dense ones shows.
    if "bf16" in peak:
        assert peak["bf16"] == peak["fp16"]
        assert peak["fp16"] / peak["tf32"] == pytest.approx(2, rel=0.03)
    if "fp8" in peak:
        assert peak["fp8"] / peak["fp16"] == pytest.approx(2, rel=0.03)
    assert ("bf16" in peak) == ((gpu.compute_capability or 0) >= 8)  # not before Ampere


@pytest.mark.parametrize("name", PRINTED)
def test_figures_of_datasheets(name: str) -> None:
    """Peaks without sparsity; of the memory less can be allocated, by at most 10 %."""
    gib, precision, tera_flops = PRINTED[name]
    assert GPUS[name].peak_flops[precision] == pytest.approx(tera_flops * 1e12)
    assert 0.9 * gib < GPUS[name].memory_bytes / 2**30 < gib


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("  X: {}", "  Y: {}", "gpus.yaml:9:3 efficiency: 'X' in only one of gpus and efficiency;"),
        ("link: L", "link: M", "gpus.yaml:7:11 gpus.X.link: unknown link 'M'; allowed: L"),
        ("1 GiB", "1", "gpus.yaml:5:13 gpus.X.memory: 1; allowed: a number with its unit"),
    ],
)
def test_faults_of_the_catalogue_have_positions(old: str, new: str, line: str) -> None:
    """Whoever edits gpus.yaml is told where a fault stands."""
    with pytest.raises(InstanceError) as caught:
        gpus_of(parse_document(ONE_GPU.replace(old, new), "gpus.yaml"), LINKS)
    assert str(caught.value).startswith(line)


#: Workloads that no config.json of tests/data describes, as Hugging Face counts them.
OTHERS = {
    "bert-large": 335_141_888,
    "t5-3b": 2_851_598_336,
    "gpt2-xl": 1_557_611_200,
    "llama3-70b": 70_553_706_496,
}


@pytest.mark.parametrize(
    "name", [name for name in PUBLISHED | COUNTED | OTHERS if name in WORKLOADS]
)
def test_published_parameter_counts(name: str) -> None:
    """The parameter count of a named workload equals the published model's."""
    parameters = (PUBLISHED | COUNTED | OTHERS)[name]
    assert WORKLOADS[name].workload(name).parameters == parameters


@pytest.mark.parametrize(
    ("name", "layers", "hidden"), [("gpt-145b", 80, 12288), ("gpt3-175b", 96, 12288)]
)
def test_gpt_parameter_counts(name: str, layers: int, hidden: int) -> None:
    """A GPT has 12 h^2 + 13 h parameters per block, two tables and a final norm."""
    # Narayanan et al. 2021, equation 2: 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h))
    counted = layers * (12 * hidden**2 + 13 * hidden) + (51200 + 2048) * hidden + 2 * hidden
    assert WORKLOADS[name].workload(name).parameters == counted


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_entry_has_a_source_and_builds(name: str) -> None:
    """Every entry states its source and becomes a workload of its own length and batch."""
    entry = WORKLOADS[name]
    workload = WORKLOADS[name].workload(name)
    assert workload.source == entry.source
    assert workload.sequence_length == entry.sequence_length
    assert workload.global_batch == entry.global_batch


def test_links_are_one_direction() -> None:
    """Half of what datasheets print for both."""
    assert GPUS["A100-80"].link.bandwidth_bytes_per_s == 300e9


def test_unknown_name_lists_the_known_ones() -> None:
    """An unknown name is answered with close matches and all names."""
    with pytest.raises(InstanceError, match=r"'bert-lrage' \(did you mean bert-large.*gpt-145b"):
        catalogue_entry("bert-lrage", "--model")
