"""Promises of formulations.instance.flash: who has it, and what would help others."""

import pytest

from formulations.instance import Cluster
from formulations.instance.catalogue import gpu_catalogue
from formulations.instance.flash import flash_obstacle, flash_remedy, has_flash
from formulations.instance.workload import Precision
from tests.instance_texts import MINIMAL, parsed

GROUP = parsed(MINIMAL).cluster.groups[0]
AMPERE = Cluster(groups=(GROUP,))
MIXED = Cluster(groups=(GROUP, GROUP.but(name="old", gpu=gpu_catalogue()["V100-16"])))
UNKNOWN = Cluster(groups=(GROUP.but(gpu=GROUP.gpu.but(compute_capability=None)),))


@pytest.mark.parametrize(
    ("cluster", "precision", "able", "remedy"),
    [
        (AMPERE, "bf16", True, "workload.flash_attention: true"),
        (AMPERE, "tf32", False, "workload.precision among fp16, bf16, fp8"),
        (MIXED, "fp16", False, "GPUs of compute capability 8.0 (Ampere) or later"),
        (UNKNOWN, "bf16", False, "workload.flash_attention: true"),
    ],
)
def test_flash_attention_is_of_ampere_in_16_bit(
    cluster: Cluster, precision: Precision, able: bool, remedy: str
) -> None:
    """What keeps GPUs from it is named; a GPU of no known capability is no obstacle."""
    assert has_flash(cluster, precision) is able
    assert flash_remedy(cluster, precision) == remedy
    assert (flash_obstacle(cluster, precision) is None) == remedy.endswith("true")
