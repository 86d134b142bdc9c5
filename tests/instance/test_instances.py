"""Promises of the instances in instances/: they load, and say what papers and releases say."""

import json
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_family
from tests.conftest import ROOT

FOLDER = ROOT / "instances"
#: best_known.yaml lists results and is no instance.
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "best_known")
FIGURES = (ROOT / "tests" / "data" / "instances.txt").read_text(encoding="utf-8").splitlines()


def load(name: str) -> Instance:
    """The instance of that name, with the most nodes where these are to choose."""
    return load_family(FOLDER / f"{name}.yaml").instance


def gpus(instance: Instance) -> dict[str, int]:
    """Number of GPUs per type."""
    count: Counter[str] = Counter()
    for group in instance.cluster.groups:
        count[group.gpu.name] += group.nodes * group.gpus_per_node
    return dict(count)


def figures(instance: Instance) -> str:
    """Machines, model, formats and times, as tests/data/instances.txt has them."""
    workload, profile = instance.workload, instance.profile
    sizes = sorted({str(group.gpus_per_node) for group in instance.cluster.groups})
    kinds = ", ".join(f"{number} {name}" for name, number in gpus(instance).items())
    blocks = sum(layer.is_block for layer in workload.layers)
    traffic = None if profile is None else profile.includes_tensor_parallel_traffic
    times = {None: "by the model", True: "with traffic", False: "without traffic"}[traffic]
    classes = instance.lengths.classes if instance.lengths else ()
    long = sum(bucket.count for bucket in classes if bucket.up_to > 2000)
    zones = {frozenset((a, b)): (a, b) for a, b in permutations(instance.cluster.zones, 2)}
    links = [instance.cluster.link_between(*pair) for pair in zones.values()]
    between = "".join(
        f"; {link.bandwidth_bytes_per_s / 1e9:g} GB/s and {link.latency_s * 1e3:.3f} ms"
        for link in links
    )
    steps = f"; {long} sequences above 2,000 tokens" if long else ""
    return (
        f"{instance.name}: {kinds} in nodes of {' or '.join(sizes)}; {blocks} blocks of"
        f" {workload.hidden_size}, {workload.parameters} parameters, {workload.global_batch} x"
        f" {workload.sequence_length} tokens; {workload.precision}, gradients of"
        f" {workload.gradient_bytes} bytes; times {times}{between}{steps}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_instance_says_what_its_paper_says(name: str) -> None:
    """Every instance is named as its file, states its sources, and has the stored figures."""
    instance = load(name)
    assert "not stated" != instance.source != "" != instance.workload.source
    assert all(group.price_usd_per_hour > 0 for group in instance.cluster.groups)
    assert (instance.name, figures(instance) in FIGURES) == (name, True), figures(instance)


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
