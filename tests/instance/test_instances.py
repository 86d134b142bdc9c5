"""Promises of the instances in instances/: they load, and say what papers and releases say."""

import json
from collections import Counter
from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_family
from tests.conftest import ROOT
from tests.recorded import as_recorded

FOLDER = ROOT / "instances"
#: best_known.yaml lists results and is no instance.
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "best_known")


def load(name: str) -> Instance:
    """The instance of that name, with the most nodes where these are to choose."""
    return load_family(FOLDER / f"{name}.yaml").instance


def gpus(instance: Instance) -> dict[str, int]:
    count: Counter[str] = Counter()
    for group in instance.cluster.groups:
        count[group.gpu.name] += group.nodes * group.gpus_per_node
    return dict(count)


@pytest.mark.parametrize("name", NAMES)
def test_instance_says_what_its_paper_says(name: str) -> None:
    """Every instance is named as its file, states its sources, and has the stored figures."""
    instance = load(name)
    workload, profile, groups = instance.workload, instance.profile, instance.cluster.groups
    assert "not stated" != instance.source != "" != instance.workload.source
    assert instance.name == name
    assert all(group.price_usd_per_hour > 0 for group in groups)
    blocks = sum(layer.is_block for layer in workload.layers)
    batch = [workload.global_batch, workload.sequence_length]
    model = [blocks, workload.hidden_size, workload.parameters, *batch]
    formats = [workload.precision, workload.gradient_bytes]
    traffic = profile and profile.includes_tensor_parallel_traffic
    links = instance.cluster.links_among(range(len(groups)))
    between = [[link.bandwidth_bytes_per_s, link.latency_s] for link in links]
    machines = [f"{number} {gpu}" for gpu, number in gpus(instance).items()]
    as_recorded("instances", {name: [machines, model, formats, traffic, between]})


@pytest.mark.parametrize("name", ["aws_bert", "aws_gpt2xl"])
def test_aws_family(name: str) -> None:
    """FASOP's last table: 80 mixes of up to 8 nodes of 8 A100 and up to 8 nodes of 8 A10."""
    family = load_family(FOLDER / f"{name}.yaml")
    assert len(list(family.members())) == 80
    assert gpus(family.member((3, 0))) == {"A100-40": 24}
    objective, batch = family.instance.objective, family.instance.workload.global_batch
    assert (objective.steps or 0) * batch == 800_000_000


def test_fasop_cluster_figures(reference: Path) -> None:
    """Links, memory and prices are FASOP's; its price of 8 A100 is halved for nodes of 4."""
    stated = json.loads((reference / "fasop" / "clusters.json").read_text())
    links = stated["links_bits_per_s"]["default (--pareto off)"]
    names = ("A100", "p4d", "p4d.24xlarge", 2), ("A10", "g5", "g5.24xlarge", 1)
    groups = load("hetero_small").cluster.groups
    for group, (gpu, node, full, parts) in zip(groups, names, strict=True):
        link = links[f"{gpu} node {node}"]
        assert group.intra_node.bandwidth_bytes_per_s * 8 == link["intra"]
        assert group.inter_node.bandwidth_bytes_per_s * 8 == link["inter"]
        assert group.gpu.memory_bytes == int(stated["gpu_memory_gib"][gpu] * 2**30)
        price = stated["prices_usd_per_hour"][f"{gpu} node (named {full})"] / parts
        assert group.price_usd_per_hour == pytest.approx(price)
