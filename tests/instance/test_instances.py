"""Promises of the instances in instances/: they load, and say what papers and releases say."""

import json
from collections import Counter
from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_family
from tests.conftest import ROOT

FOLDER = ROOT / "instances"
#: best_known.yaml lists results and is no instance.
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "best_known")

#: FASOP's clusters; its models by suffix of the file: blocks, hidden size, batch, tokens.
CLUSTERS = {
    "hetero_small": {"A100-40": 4, "A10": 12},
    "hetero_large": {"A100-40": 4, "A10": 28},
    "homo_small": {"A10": 16},
    "homo_large": {"A10": 32},
}
WORKLOADS = {"": (24, 1024, 256, 512), "_gpt2xl": (48, 1600, 64, 1024), "_t5": (48, 1024, 128, 512)}
A40, A800 = {"A40": 30}, {"A800-80": 32}
#: Instance -> GPUs, (blocks, hidden size, batch, tokens). Besides FASOP's, Oobleck's and HotSPa's,
#: and table 1 of Narayanan et al. 2021.
STATED: dict[str, tuple[dict[str, int], tuple[int, ...]]] = {
    cluster + suffix: (gpus, workload)
    for cluster, gpus in CLUSTERS.items()
    for suffix, workload in WORKLOADS.items()
} | {
    "megatron_145b": ({"A100-80": 1536}, (80, 12288, 2304, 2048)),
    "oobleck_bert_large": (A40, (24, 1024)),
    "oobleck_gpt2": (A40, (24, 1024)),
    "oobleck_gpt3_medium": (A40, (24, 1024)),
    "oobleck_gpt3_2_7b": (A40, (32, 2560)),
    "oobleck_gpt3_6_7b": (A40, (32, 4096)),
    "oobleck_mixed": ({"A40": 18, "L4": 12}, (32, 2560)),
    "llama2_7b_32_a800": (A800, (32, 4096, 512, 32768)),
    "llama2_13b_32_a800": (A800, (40, 5120, 512, 32768)),
    "llama2_32b_32_a800_github": (A800, (60, 6656, 512, 32768)),
    "three_types": ({"H100": 8, "A100-80": 8, "L40S": 4}, ()),
}
#: Parameters. GPT-3: 12 L h^2 + 13 L h + (50257 + s) h + 2 h for L blocks of width h, s positions.
#: HotSPa's 32B by hand, with a vocabulary of 30592: a block has 4 * 6656^2 + 3 * 6656 * 17920
#: + 2 * 6656 = 535,049,216, the rest 2 * 30592 * 6656 + 6656.
PARAMETERS = {
    "oobleck_bert_large": 335_141_888,
    "oobleck_gpt2": 354_823_168,
    "oobleck_gpt3_medium": 355_871_744,
    "oobleck_gpt3_2_7b": 2_651_553_280,
    "oobleck_mixed": 2_651_553_280,
    "oobleck_gpt3_6_7b": 6_658_404_352,
    "llama2_7b_32_a800": 6_726_881_280,
    "llama2_13b_32_a800": 13_001_446_400,
    "llama2_32b_32_a800": 32_510_200_320,
}


def load(name: str) -> Instance:
    """The instance of that name, with the most nodes where these are to choose."""
    return load_family(FOLDER / f"{name}.yaml").instance


def gpus(instance: Instance) -> dict[str, int]:
    """Number of GPUs per type."""
    count: Counter[str] = Counter()
    for group in instance.cluster.groups:
        count[group.gpu.name] += group.nodes * group.gpus_per_node
    return dict(count)


@pytest.mark.parametrize("name", NAMES)
def test_instance_loads_with_name_and_sources(name: str) -> None:
    """Every instance is named as its file, states its sources, and what its paper says."""
    instance = load(name)
    workload = instance.workload
    assert instance.name == name
    assert instance.source != "not stated"
    assert workload.source
    assert all(group.price_usd_per_hour > 0 for group in instance.cluster.groups)
    machines, stated = STATED.get(name, (gpus(instance), ()))
    blocks = sum(layer.is_block for layer in workload.layers)
    figures = (blocks, workload.hidden_size, workload.global_batch, workload.sequence_length)
    assert (gpus(instance), figures[: len(stated)]) == (machines, stated)
    assert workload.parameters == PARAMETERS.get(name, workload.parameters)
    if name in (cluster + suffix for cluster in CLUSTERS for suffix in WORKLOADS):
        # FASOP: nodes of 4, gradients in 16 bit, measured times but of T5, with their traffic
        assert {group.gpus_per_node for group in instance.cluster.groups} == {4}
        assert workload.gradient_bytes == 2
        assert (instance.profile is None) == name.endswith("_t5")
        assert instance.profile is None or instance.profile.includes_tensor_parallel_traffic


@pytest.mark.parametrize("name", ["aws_bert", "aws_gpt2xl"])
def test_aws_family(name: str) -> None:
    """FASOP's last table: 80 mixes of up to 8 nodes of 8 A100 and up to 8 nodes of 8 A10."""
    family = load_family(FOLDER / f"{name}.yaml")
    assert len(list(family.members())) == 80
    assert gpus(family.instance) == {"A100-40": 64, "A10": 64}
    objective, batch = family.instance.objective, family.instance.workload.global_batch
    assert (objective.steps or 0) * batch == 800_000_000


def test_links_between_zones() -> None:
    """hetero_small's nodes in two zones of a region, then an A10 node more in another region."""
    two, three, small = load("two_zones"), load("three_zones"), load("hetero_small")
    zones = [group.zone for group in two.cluster.groups]
    assert zones == ["us-west-2a", "us-west-2a", "us-west-2b"]
    fast, slow = (group.but(name="", nodes=1) for group in small.cluster.groups)
    for cluster in (two.cluster, three.cluster):
        groups = [group.but(name="", nodes=1, zone=None) for group in cluster.groups]
        assert groups == [fast, slow, slow]
    # Four flows of 5 Gbit/s; half of a ping of 3.37 ms; abroad half of the mean of 86.98 ms one way
    # and 88.68 ms the other.
    inside, abroad = (three.cluster.links_among(pair)[0] for pair in ((0, 1), (1, 2)))
    assert two.cluster.zone_link == inside
    assert inside.bandwidth_bytes_per_s == abroad.bandwidth_bytes_per_s == 4 * 5e9 / 8
    assert inside.latency_s == pytest.approx(3.37e-3 / 2)
    assert abroad.latency_s == pytest.approx((86.98e-3 + 88.68e-3) / 4, rel=1e-3)


@pytest.mark.parametrize(("data", "share"), [("", (0.05, 0.1)), ("_github", (0.3, 0.4))])
def test_mixed_lengths(data: str, share: tuple[float, float]) -> None:
    """A step of 512 sequences, a third of GitHub's above 2,000 tokens."""
    lengths = load(f"llama2_7b_32_a800{data}").lengths
    assert lengths is not None
    long = sum(bucket.count for bucket in lengths.classes if bucket.up_to > 2000)
    assert share[0] < long / 512 < share[1]


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
