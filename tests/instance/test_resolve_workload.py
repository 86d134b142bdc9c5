"""A model by name, by its file or sizes; who has flash attention, and what would help others."""

from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance import Cluster, resolve_workload
from formulations.instance.huggingface import config_name
from formulations.instance.machines import gpu_catalogue
from formulations.instance.workload import PRECISIONS, Workload
from tests.architectures import PUBLISHED
from tests.instance.resolved import MINIMAL, broken, instances, parsed
from tests.recorded import Cases, digest, recorded

WORKLOADS = resolve_workload.workload_catalogue()

test_lines = broken("huggingface", "flash", "workload", "sequence", "fp8", "bf16", "no_")


@recorded("resolve_workload")
def test_workloads_are_the_recorded_ones() -> Cases:
    """Of shipped files and drawn texts, without their layers; where plans decide, both forms."""
    for name, instance in instances():
        work, fused = instance.workload, instance.fused
        fields = [work.but(layer_runs=()), fused and fused.but(layer_runs=())]
        flops = [layer.forward_flops for layer in work.layers]
        yield name, [digest(fields), work.num_blocks, digest(flops)]


def test_what_is_written_goes_before_the_catalogue(tmp_path: Path) -> None:
    """Length, batch, name, source and formats; without them the entry's own.

    A path is relative to the instance file; 12 layers of GPT-2 make 14 with both ends.
    """

    def workload_of(fields: str) -> Workload:
        text = MINIMAL.replace("{catalogue: bert-large}", f"{{{fields}}}")
        return parsed(text + "search: {target: any}\n", tmp_path).workload

    workload = workload_of(
        "catalogue: bert-large, sequence_length: 128, global_batch: 8, name: n, source: s,"
        " gradient_precision: bf16, optimizer_state: 8bit"
    )
    assert (workload.sequence_length, workload.global_batch) == (128, 8)
    assert (workload.name, workload.source) == ("n", "s")
    assert (workload.gradient_bytes, workload.optimizer_state) == (2, "8bit")
    assert workload_of("catalogue: bert-large").name == "bert-large"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    read = workload_of("huggingface: model/config.json, sequence_length: 1024, global_batch: 8")
    assert (read.name, len(read.layers), read.parameters) == ("model", 14, 124_439_808)
    assert config_name(Path("/m/llama.json")) == "llama"


@recorded("resolve_workload")
def test_who_has_flash_attention_is_recorded() -> Cases:
    """Ampere in 16 bit: what keeps GPUs from it is named; no known capability is no obstacle."""
    group = parsed(MINIMAL).cluster.groups[0]
    old = group.but(name="old", gpu=gpu_catalogue()["V100-16"])
    odd = group.but(gpu=group.gpu.but(compute_capability=None))
    for name, groups in {"ampere": (group,), "mixed": (group, old), "unknown": (odd,)}.items():
        cluster = Cluster(groups=groups)
        for precision in PRECISIONS:
            obstacle = resolve_workload.flash_obstacle(cluster, precision)
            told = [
                resolve_workload.has_flash(cluster, precision),
                resolve_workload.flash_remedy(cluster, precision),
            ]
            yield f"flash {name} {precision}", [*told, obstacle and list(obstacle)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_entry_has_a_source_and_its_published_parameters(name: str) -> None:
    entry, workload = WORKLOADS[name], WORKLOADS[name].workload(name)
    assert (workload.source, workload.sequence_length) == (entry.source, entry.sequence_length)
    assert workload.global_batch == entry.global_batch
    assert workload.parameters == PUBLISHED.get(name, workload.parameters)


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InstanceError, match=r"'bert-lrage' \(did you mean bert-large.*gpt-145b"):
        resolve_workload.catalogue_entry("bert-lrage", "--model")
