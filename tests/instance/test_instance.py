"""Promises of formulations.instance.instance: sides of a mixed cluster, sources, families."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from formulations.errors import InstanceError
from formulations.instance.instance import Family, gpu_evidence
from formulations.instance.load import load_family, load_instance
from tests.conftest import ROOT
from tests.instance_texts import MINIMAL, PROFILE, parsed
from tests.small_families import small_family

OLD = "    - {name: old, gpu: V100-16, gpus_per_node: 4, nodes: 1, inter_node: Ethernet 40G}\n"
PRECISE = MINIMAL.replace("bert-large", "bert-large, precision: fp16")
MIXED = parsed(PRECISE + OLD + "search: {context_parallel: [1, 2]}\n")


def test_plans_have_flash_attention_where_all_their_gpus_do() -> None:
    """Without it no GPUs share a sequence; a cluster of one kind has one side, itself."""
    without, fused = MIXED.sides
    assert (without.workload.flash_attention, fused.workload.flash_attention) == (False, True)
    assert (without.search.context_parallel, fused.search.context_parallel) == ((1,), (1, 2))
    assert [MIXED.side(nodes) for nodes in ((2, 0), (2, 1), (0, 1))] == [1, 0, 0]
    assert MIXED.on((1, 0)) is fused
    plain, changed = parsed(MINIMAL), MIXED.with_batch(8)
    assert (plain.sides, plain.side((1,))) == ((plain,), 0)
    assert [side.workload.global_batch for side in changed.sides] == [8, 8]


def test_messages_are_split_with_the_sequence() -> None:
    """By scatter-gather too, and then the receivers put them together."""
    split = parsed(MINIMAL)
    assert split.splits_sequence(2) is split.splits_messages(2) is True
    assert not split.gathers_messages(2)
    whole = split.but(search={"sequence_parallel": False})
    assert not whole.splits_messages(2)
    scattered = whole.but(search={"scatter_gather": True})
    assert scattered.splits_messages(2) is scattered.gathers_messages(2) is True


def test_useful_sequences_need_what_preemptions_cost() -> None:
    """A file resolves it; a value without it is refused."""
    values = {**dict(MIXED), "objective": {"minimize": "cost_per_useful_sequence"}}
    with pytest.raises(ValidationError, match="without what preemptions cost"):
        type(MIXED).model_validate(values)


def test_sources_of_the_types_that_are_used() -> None:
    """One entry per type and links; measured times are the profile's, of others the type's."""
    both = gpu_evidence(MIXED, (1, 1))
    assert [evidence.gpu for evidence in both] == ["A100-40", "V100-16"]
    assert [evidence.gpu for evidence in gpu_evidence(MIXED, (0, 1))] == ["V100-16"]
    (measured,) = gpu_evidence(parsed(MINIMAL + PROFILE), (1,))
    assert (measured.layer_times.kind, measured.layer_times.source) == ("measured", "invented")
    assert both[0].layer_times.source == MIXED.cluster.groups[0].gpu.efficiency_source


def test_member_has_the_groups_that_have_nodes() -> None:
    """A link between zones stays as long as nodes stand in two of them; all nodes are in use."""
    instance = load_instance(ROOT / "instances" / "two_zones.yaml")
    family = Family(instance=instance, fewest=(0, 0, 0))
    near, far = family.member((1, 1, 0)), family.member((1, 0, 2))
    assert [group.zone for group in near.cluster.groups] == ["us-west-2a", "us-west-2a"]
    assert near.cluster.zone_link is None
    assert [group.nodes for group in far.cluster.groups] == [1, 2]
    assert far.cluster.zone_link == instance.cluster.zone_link
    assert not far.search.idle_nodes


def test_plans_of_a_cluster_are_of_no_smaller_one() -> None:
    """Nodes idle only where there are as few as may be: else a smaller cluster has the plan."""
    family = small_family(9, (1, 0))
    assert list(family.members()) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert list(family.uses((1, 2))) == [(0, 2), (1, 2)]
    assert list(family.uses((1, 0))) == [(1, 0)]
    assert list(family.uses((2, 1))) == [(2, 1)]
    family = family.but(instance={"search": family.instance.search.but(idle_nodes=False)})
    assert list(family.uses((1, 2))) == [(1, 2)]


def test_too_many_clusters_are_one_line(tmp_path: Path) -> None:
    """More than can be looked at one by one: file, line, how many."""
    text = (ROOT / "instances" / "hetero_small.yaml").read_text(encoding="utf-8")
    text = text.replace("nodes: 1", "nodes: {max: 999}").replace("nodes: 3", "nodes: {max: 999}")
    path = tmp_path / "x.yaml"
    path.write_text(text.replace("profiles/", f"{ROOT / 'instances' / 'profiles'}/"))
    with pytest.raises(InstanceError) as caught:
        load_family(path)
    problem = "cluster.groups: 1,000,000 clusters; allowed: at most 100,000"
    assert str(caught.value) == f"{path}:18:5 {problem}"
