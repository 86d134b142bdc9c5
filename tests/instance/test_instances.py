"""Promises of the instances in instances/: they load, and say what the issue and papers say."""

import json
from collections import Counter
from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_family

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "instances"
#: best_known.yaml lists results and is no instance.
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "best_known")

CLUSTERS = {
    "hetero_small": {"A100-40": 4, "A10": 12},
    "hetero_large": {"A100-40": 4, "A10": 28},
    "homo_small": {"A10": 16},
    "homo_large": {"A10": 32},
}
#: Suffix of the file -> blocks, hidden size, batch, sequence length, has it measured times?
WORKLOADS = {
    "": (24, 1024, 256, 512, True),
    "_gpt2xl": (48, 1600, 64, 1024, True),
    "_t5": (48, 1024, 128, 512, False),
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
    """Every instance loads, is named as its file and states the source of its figures."""
    instance = load(name)
    assert instance.name == name
    assert instance.source != "not stated"
    assert instance.workload.source
    assert all(group.price_usd_per_hour > 0 for group in instance.cluster.groups)


@pytest.mark.parametrize("suffix", WORKLOADS)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_fasop_instance(cluster: str, suffix: str) -> None:
    """FASOP's four clusters with its three models: sizes, batch, nodes of 4, 16-bit gradients."""
    instance = load(cluster + suffix)
    blocks, hidden, batch, length, measured = WORKLOADS[suffix]
    workload = instance.workload
    assert gpus(instance) == CLUSTERS[cluster]
    assert {group.gpus_per_node for group in instance.cluster.groups} == {4}
    assert sum(layer.is_block for layer in workload.layers) == blocks
    assert (workload.hidden_size, workload.global_batch) == (hidden, batch)
    assert (workload.sequence_length, workload.gradient_bytes) == (length, 2)
    assert (instance.profile is not None) is measured
    assert instance.search.tensor_parallel == (1, 2, 4)


@pytest.mark.parametrize("name", ["aws_bert", "aws_gpt2xl"])
def test_aws_family(name: str) -> None:
    """FASOP's last table: 80 mixes of up to 8 nodes of 8 A100 and up to 8 nodes of 8 A10."""
    family = load_family(FOLDER / f"{name}.yaml")
    assert len(list(family.members())) == 80
    assert gpus(family.instance) == {"A100-40": 64, "A10": 64}
    assert gpus(family.member((3, 0))) == {"A100-40": 24}
    objective, batch = family.instance.objective, family.instance.workload.global_batch
    assert (objective.steps or 0) * batch == 800_000_000


def test_megatron_145b() -> None:
    """Narayanan et al. 2021, table 1: 145.6 billion parameters on 1536 GPUs, batch 2304."""
    instance = load("megatron_145b")
    assert gpus(instance) == {"A100-80": 1536}
    assert instance.workload.parameters == pytest.approx(145.6e9, rel=1e-3)
    assert sum(layer.is_block for layer in instance.workload.layers) == 80
    assert (instance.workload.global_batch, instance.workload.sequence_length) == (2304, 2048)
    # 8 adapters of 200 Gbit/s
    assert instance.cluster.groups[0].inter_node.bandwidth_bytes_per_s == 200e9


def test_three_types() -> None:
    """Three GPU types in nodes of three sizes, with uneven micro-batches."""
    instance = load("three_types")
    assert gpus(instance) == {"H100": 8, "A100-80": 8, "L40S": 4}
    assert [group.gpus_per_node for group in instance.cluster.groups] == [8, 4, 2]
    assert instance.search.micro_batches == "uneven"


def test_two_zones() -> None:
    """The nodes of hetero_small, one A10 node beside the A100 one and two in another zone."""
    instance, small = load("two_zones"), load("hetero_small")
    a100, near, far = instance.cluster.groups
    assert gpus(instance) == gpus(small)
    assert [group.zone for group in (a100, near, far)] == ["us-west-2a", "us-west-2a", "us-west-2b"]
    place = {"name": "", "nodes": 1, "zone": None}
    ours = [group.model_copy(update=place) for group in (a100, near, far)]
    fast, slow = (group.model_copy(update=place) for group in small.cluster.groups)
    assert ours == [fast, slow, slow]
    link = instance.cluster.zone_link
    assert link is not None
    # Four flows of 5 Gbit/s; half of a ping of 3.37 ms.
    assert link.bandwidth_bytes_per_s == 4 * 5e9 / 8
    assert link.latency_s == pytest.approx(3.37e-3 / 2)
    assert "5 Gbit/s" in link.source


def test_three_zones() -> None:
    """The same nodes but one A10 node more, two zones of one region and one of another."""
    instance, two = load("three_zones"), load("two_zones")
    place = {"name": "", "nodes": 1, "zone": None}
    ours = [group.model_copy(update=place) for group in instance.cluster.groups]
    assert ours == [group.model_copy(update=place) for group in two.cluster.groups]
    assert [group.nodes for group in instance.cluster.groups] == [1, 2, 2]
    near, far = instance.cluster.links_among((0, 1)), instance.cluster.links_among((1, 2))
    assert near == (two.cluster.zone_link,)
    assert far[0].bandwidth_bytes_per_s == near[0].bandwidth_bytes_per_s
    # Half of the mean of 86.98 ms one way and 88.68 ms the other.
    assert far[0].latency_s == pytest.approx((86.98e-3 + 88.68e-3) / 4, rel=1e-3)


#: Instance -> model of Oobleck's simulator, parameters. GPT-3: 12 L h^2 + 13 L h + (50257 + s) h
#: + 2 h for L blocks of width h, s positions.
OOBLECK = {
    "oobleck_bert_large": ("BERT-large", 335_141_888),
    "oobleck_gpt2": ("GPT-2-ours", 354_823_168),
    "oobleck_gpt3_medium": ("GPT-3-medium", 355_871_744),
    "oobleck_gpt3_2_7b": ("GPT-3-2_7b", 2_651_553_280),
    "oobleck_gpt3_6_7b": ("GPT-3-6_7b", 6_658_404_352),
}


@pytest.mark.parametrize("name", OOBLECK)
def test_oobleck_instance(name: str, reference: Path) -> None:
    """Oobleck's workloads: the batch of its simulator, on 30 nodes with one A40."""
    model, parameters = OOBLECK[name]
    stated = json.loads((reference / "oobleck" / "table2_inputs.json").read_text())
    instance = load(name)
    assert instance.workload.global_batch == stated["samples_per_step"][model]
    assert instance.workload.parameters == parameters
    assert [(g.nodes, g.gpu.name, g.gpus_per_node) for g in instance.cluster.groups] == [
        (30, "A40", 1)
    ]


def test_oobleck_mixed() -> None:
    """The 2.7B workload on 30 nodes of two types."""
    mixed, plain = load("oobleck_mixed"), load("oobleck_gpt3_2_7b")
    assert gpus(mixed) == {"A40": 18, "L4": 12}
    assert mixed.workload == plain.workload
    assert mixed.search == plain.search


def test_fasop_cluster_figures(reference: Path) -> None:
    """Links, memory and prices are FASOP's; its price of 8 A100 is halved for nodes of 4."""
    stated = json.loads((reference / "fasop" / "clusters.json").read_text())
    links = stated["links_bits_per_s"]["default (--pareto off)"]
    memory = stated["gpu_memory_gib"]
    prices = stated["prices_usd_per_hour"]
    a100, a10 = load("hetero_small").cluster.groups
    for group, key, gib in (
        (a100, "A100 node p4d", memory["A100"]),
        (a10, "A10 node g5", memory["A10"]),
    ):
        assert group.intra_node.bandwidth_bytes_per_s * 8 == links[key]["intra"]
        assert group.inter_node.bandwidth_bytes_per_s * 8 == links[key]["inter"]
        assert group.gpu.memory_bytes == int(gib * 2**30)
    half = prices["A100 node (named p4d.24xlarge)"] / 2
    assert a100.price_usd_per_hour == pytest.approx(half)
    assert a10.price_usd_per_hour == prices["A10 node (named g5.24xlarge)"]


#: Micro-batch factors of embedding, block and head in FASOP's estimator at sizes 1, 4, 8, 32.
FACTORS = {
    ("bert", "A100", "embedding"): (1, 1, 1.385, 1.385 * 1.589 * 1.565),
    ("bert", "A100", "transformer_0"): (1, 1, 1.236, 1.235 * 1.658 * 32 / 16),
    ("bert", "A100", "post_process"): (1, 4, 8, 32),
    ("bert", "A10", "embedding"): (1, 1, 2, 8),
    ("bert", "A10", "transformer_0"): (1, 1, 2, 8),
    ("bert", "A10", "post_process"): (1, 4, 8, 32),
    ("gpt2XL", "A100", "embedding"): (1, 1, 1, 1),
    ("gpt2XL", "A100", "transformer_0"): (1, 4, 8, 32),
    ("gpt2XL", "A100", "post_process"): (1, 1, 1, 1),
    ("gpt2XL", "A10", "embedding"): (1, 4, 8, 32),
    ("gpt2XL", "A10", "transformer_0"): (1, 4, 8, 32),
    ("gpt2XL", "A10", "post_process"): (1, 4, 8, 32),
}
KINDS = {"embedding": "embedding", "transformer_0": "block", "post_process": "head"}
INSTANCES = {"bert": "hetero_small", "gpt2XL": "hetero_large_gpt2xl"}


@pytest.mark.parametrize(("model", "gpu", "layer"), FACTORS)
def test_fasop_layer_times(model: str, gpu: str, layer: str, reference: Path) -> None:
    """Profiles hold FASOP's forward times, scaled by its factors; backward is twice forward."""
    stated = json.loads((reference / "fasop" / "profiles.json").read_text())
    profile = load(INSTANCES[model]).profile
    assert profile is not None
    for tp in (1, 2, 4):
        rows = [
            p for p in stated["profiles"] if (p["model"], p["gpu"], p["tp"]) == (model, gpu, tp)
        ]
        seconds = dict(rows[0]["layers"])[layer]
        for b, factor in zip((1, 4, 8, 32), FACTORS[model, gpu, layer], strict=True):
            name = "A100-40" if gpu == "A100" else gpu
            (forward, backward, _), origin = profile.time_s(KINDS[layer], name, tp, b)
            assert origin == "measured"
            assert forward == pytest.approx(seconds * factor, rel=1e-8)
            assert backward == pytest.approx(2 * forward)


def test_measured_times_contain_the_tensor_parallel_traffic() -> None:
    """FASOP profiled its layers with their all-reduces."""
    profile = load("hetero_small").profile
    assert profile is not None
    assert profile.includes_tensor_parallel_traffic


#: HotSPa's models: blocks, parameters with a vocabulary of 30592. Of 32B by hand: a block has
#: 4 * 6656^2 + 3 * 6656 * 17920 + 2 * 6656 = 535,049,216, the rest 2 * 30592 * 6656 + 6656.
LLAMA2 = {"7b": (32, 6_726_881_280), "13b": (40, 13_001_446_400), "32b": (60, 32_510_200_320)}


@pytest.mark.parametrize("data", ["", "_github"])
@pytest.mark.parametrize("model", LLAMA2)
def test_mixed_lengths(model: str, data: str) -> None:
    """LLaMA-2 on 32 A800, a step of 512 sequences, a third of GitHub's above 2,000 tokens."""
    instance = load(f"llama2_{model}_32_a800{data}")
    blocks, parameters = LLAMA2[model]
    assert gpus(instance) == {"A800-80": 32}
    assert sum(layer.is_block for layer in instance.workload.layers) == blocks
    assert instance.workload.parameters == parameters
    assert (instance.workload.global_batch, instance.workload.sequence_length) == (512, 32768)
    assert instance.lengths is not None
    long = sum(one.count for one in instance.lengths.classes if one.up_to > 2000)
    assert 0.3 < long / 512 < 0.4 if data else 0.05 < long / 512 < 0.1
