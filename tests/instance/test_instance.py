"""Promises of formulations.instance.instance: sides of a mixed cluster, sources, families."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from formulations.errors import InstanceError
from formulations.instance.instance import Family, gpu_evidence, margin_evidence
from formulations.instance.load import load_family
from formulations.instance.profile import Calibration
from tests.conftest import ROOT
from tests.instance.resolved import instances
from tests.instance_texts import MINIMAL, PROFILE, parsed
from tests.recorded import Cases, digest, recorded
from tests.small_families import small_family

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
