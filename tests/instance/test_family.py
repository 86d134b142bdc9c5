"""Families: their members, and which nodes plans of each may use."""

from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance.family import Family
from formulations.instance.load import load_family, load_instance
from tests.conftest import ROOT
from tests.small_families import small_family


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
