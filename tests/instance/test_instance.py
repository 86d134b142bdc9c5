"""Promises of formulations.instance.instance, and of the instances in instances/."""

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from pydantic import ValidationError

from formulations.instance import Instance
from formulations.instance.instance import (
    NODE_READY_S,
    RECOVERIES,
    RECOVERY_SOURCE,
    Family,
    Preemption,
    PreemptionFile,
    gpu_evidence,
    margin_evidence,
    measured_recovery,
    resolve_preemption,
)
from formulations.instance.load import load_family
from formulations.instance.machines import Spot
from formulations.instance.profile import Calibration
from formulations.instance.record import MOST_CHOICES_OF_TERMS
from tests.conftest import ROOT
from tests.instance.resolved import MINIMAL, PROFILE, SHIPPED, instances, parsed, shipped
from tests.recorded import Cases, as_recorded, digest, recorded
from tests.refusals import refusal
from tests.small_families import small_family

# Promises of formulations.instance.instance: sides of a mixed cluster, sources, families.

OLD = "    - {name: old, gpu: V100-16, gpus_per_node: 4, nodes: 1, inter_node: Ethernet 40G}\n"
PRECISE = MINIMAL.replace("bert-large", "bert-large, precision: fp16")
FACTORS = {"block": {"B200": {1: {1: 1.0}}}}
NEWER = parsed(PRECISE + OLD.replace("V100-16", "B200"))
MIXED = parsed(PRECISE + OLD + "search: {context_parallel: [1, 2]}\n")


@recorded("instance")
def test_instances_are_the_recorded_ones() -> Cases:
    """Which messages are split, sources of GPUs, sides, another batch, members of families."""
    made = dict(instances()) | {"profile": parsed(MINIMAL + PROFILE), "mixed": MIXED}
    for name, instance in made.items():
        groups = instance.cluster.groups
        nodes = (1, *(0 for _ in groups[1:]))
        scattered = instance.but(search={"scatter_gather": True})
        split = [
            [each.splits_sequence(tp), each.splits_messages(tp), each.gathers_messages(tp)]
            for each in (instance, scattered)
            for tp in (1, 2, 3, 4)
        ]
        evidence = [gpu_evidence(instance, used) for used in (nodes, [1] * len(groups))]
        family = Family(instance=instance, fewest=(0,) * len(groups))
        member, margin = family.member(nodes), margin_evidence(instance, nodes)
        sides = [[*side.search.context_parallel] for side in instance.sides]
        batch = instance.with_batch(8).sides[-1].workload.global_batch
        kept = digest([member.cluster, member.search]), instance.side(nodes), batch
        yield name, [digest(split), digest(evidence), *kept, sides, list(margin)]
    told = Calibration(source="3 steps of x.csv", memory_headroom=0.02, factors=FACTORS)
    calibrated = NEWER.model_copy(update={"calibration": told})
    pairs = ((NEWER, (1, 1)), (NEWER, (0, 1)), (MIXED, (1, 1)), (calibrated, (1, 1)))
    yield "margins", [margin_evidence(instance, nodes) for instance, nodes in pairs]
    family = small_family(9, (1, 0))
    whole = family.but(instance={"search": family.instance.search.but(idle_nodes=False)})
    uses = [[*each.uses(counts)] for each in (family, whole) for counts in family.members()]
    yield "uses", [[*family.members()], uses]
    # Nodes idle only where there are as few as may be: else a smaller cluster has the plan
    assert list(family.uses((1, 2))) == [(0, 2), (1, 2)]


def test_useful_sequences_need_what_preemptions_cost() -> None:
    values = {**dict(MIXED), "objective": {"minimize": "cost_per_useful_sequence"}}
    with pytest.raises(ValidationError, match="without what preemptions cost"):
        type(MIXED).model_validate(values)
    terms = Spot(price_usd_per_hour=1.0, preemptions_per_hour=1.0)
    group = MIXED.cluster.groups[0].but(spot=terms, nodes=1)
    values |= {"preemption": Preemption(restart_s=1.0, checkpoint_s=1.0)}
    for number in (MOST_CHOICES_OF_TERMS, MOST_CHOICES_OF_TERMS + 1):
        values["cluster"] = MIXED.cluster.but(groups=(group,) * number)
        with nullcontext() if number <= MOST_CHOICES_OF_TERMS else pytest.raises(ValidationError):
            type(MIXED).model_validate(values)


def test_too_many_clusters_are_one_line(tmp_path: Path) -> None:
    text = (ROOT / "instances" / "hetero_small.yaml").read_text(encoding="utf-8")
    text = text.replace("nodes: 1", "nodes: {max: 999}").replace("nodes: 3", "nodes: {max: 999}")
    path = tmp_path / "x.yaml"
    path.write_text(text.replace("profiles/", f"{ROOT / 'instances' / 'profiles'}/"))
    problem = "cluster.groups: 1,000,000 clusters; allowed: at most 100,000"
    assert refusal(lambda: load_family(path)) == f"{path}:18:5 {problem}"


# Promises of the instances in instances/: they load, and say what papers and releases say.


def gpus(instance: Instance) -> dict[str, int]:
    count: Counter[str] = Counter()
    for group in instance.cluster.groups:
        count[group.gpu.name] += group.nodes * group.gpus_per_node
    return dict(count)


@pytest.mark.parametrize("name", [path.stem for path in SHIPPED])
def test_instance_says_what_its_paper_says(name: str) -> None:
    """Every instance is named as its file, states its sources, and has the stored figures."""
    instance = shipped()[name]
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


def test_fasop_cluster_figures(reference: Path) -> None:
    """Links, memory and prices are FASOP's; its price of 8 A100 is halved for nodes of 4."""
    stated = json.loads((reference / "fasop" / "clusters.json").read_text())
    links = stated["links_bits_per_s"]["default (--pareto off)"]
    names = ("A100", "p4d", "p4d.24xlarge", 2), ("A10", "g5", "g5.24xlarge", 1)
    groups = shipped()["hetero_small"].cluster.groups
    for group, (gpu, node, full, parts) in zip(groups, names, strict=True):
        link = links[f"{gpu} node {node}"]
        assert group.intra_node.bandwidth_bytes_per_s * 8 == link["intra"]
        assert group.inter_node.bandwidth_bytes_per_s * 8 == link["inter"]
        assert group.gpu.memory_bytes == int(stated["gpu_memory_gib"][gpu] * 2**30)
        price = stated["prices_usd_per_hour"][f"{gpu} node (named {full})"] / parts
        assert group.price_usd_per_hour == pytest.approx(price)


LARGEST = RECOVERIES[-1].parameters


def test_what_is_not_written_is_varunas() -> None:
    """Of the next larger model, above the largest in proportion; written figures stay.

    45 s until a node is ready and a restart of 701 s.
    """
    sizes = (1, 335_141_888, 335_141_889, LARGEST, 2 * LARGEST)
    costs = [(cost.model, cost.oobleck_s) for cost, _ in map(measured_recovery, sizes)]
    smaller = [("BERT-large", 2), ("BERT-large", 2), ("GPT-2", 2), ("GPT-3 6.7B", 10)]
    assert costs == [*smaller, ("GPT-3 6.7B", 2 * 10)]
    usual = resolve_preemption(None, 2 * LARGEST)
    assert (usual.restart_s, usual.checkpoint_s) == (NODE_READY_S + 2 * 701, 2 * 120)
    assert usual.source.endswith(f"as GPT-3 6.7B, times 2 for the size, {RECOVERY_SOURCE}")
    written = PreemptionFile(restart_s=5.0, kind="measured", source="ours")
    decided = resolve_preemption(written, LARGEST)
    assert (decided.restart_s, decided.checkpoint_s, decided.kind) == (5.0, 120, "assumed")
    assert decided.source == f"ours; checkpoint Varuna's, as GPT-3 6.7B, {RECOVERY_SOURCE}"
    stated = resolve_preemption(written.but(checkpoint_s=3.0), LARGEST)
    assert (stated.checkpoint_s, stated.kind, stated.source) == (3.0, "measured", "ours")
