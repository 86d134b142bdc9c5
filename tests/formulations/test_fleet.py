"""Templates: what is one, and what is refused; layers on the nodes of pipelines."""

import pytest
from pydantic import ValidationError

from formulations.costs.template_costs import template_degrees
from formulations.fleet import Pipeline, Template, holdings, layers_by_position, stage_on
from formulations.node_sharing import NodeSplit
from formulations.plan import Stage
from tests.formulations.test_transition import THREE, TWO
from tests.small_instances import random_instance


def stage(start: int, end: int, node: int, first_gpu: int, gpus: int) -> Stage:
    return stage_on(layers=(start, end), node=node, first_gpu=first_gpu, gpus=gpus)


#: Two nodes of group 1 and one of group 0: stages of 4 GPUs, of 2 and 2, of 2 (and 2 idle).
FIGURES = ((0, 3, 0, 0, 4), (3, 4, 1, 0, 2), (4, 6, 1, 2, 2), (6, 9, 2, 0, 2))
GOOD = tuple(stage(*figures) for figures in FIGURES)


def test_counts_of_a_template() -> None:
    """9 layers, 4 stages; 1 node of group 0, 2 of group 1, none of group 2; in JSON the same."""
    template = Template(node_groups=(1, 1, 0), stages=GOOD)
    assert (template.num_layers, template.num_stages, template.num_nodes) == (9, 4, 3)
    assert template.counts(3) == (1, 2, 0)
    assert Template.model_validate_json(template.model_dump_json()) == template


@pytest.mark.parametrize(
    ("position", "wrong", "words"),
    [
        (0, stage(1, 3, 0, 0, 4), "start with layer 0"),
        (1, stage(3, 3, 1, 0, 2), r"stages\[1\] has layers \[3, 3\)"),
        (1, stage(2, 4, 1, 0, 2), "start with layer 3"),
        (2, stage(4, 6, 1, 1, 2), "shares GPU 1 of node 1"),
        (3, stage(6, 9, 0, 0, 2), "nodes 0 to 2 once each"),
        (3, stage(6, 9, 3, 0, 2), "nodes 0 to 2 once each"),
        (2, stage(4, 6, 0, 4, 2), "goes back to node 0"),
    ],
)
def test_broken_templates_are_refused(position: int, wrong: Stage, words: str) -> None:
    """Gaps and overlaps of layers, shared GPUs, nodes without a stage or visited twice."""
    stages = (*GOOD[:position], wrong, *GOOD[position + 1 :])
    if "goes back" in words:
        stages = (*stages[:3], stage(6, 7, 1, 4, 1), stage(7, 9, 2, 0, 2))
    with pytest.raises(ValidationError, match=words):
        Template(node_groups=(1, 1, 0), stages=stages)


@pytest.mark.parametrize(
    ("listed", "aligned", "any_split"),
    [
        (None, (1, 2, 4), (1, 2, 3, 4)),
        ((1, 2, 4), (1, 2, 4), (1, 2, 3, 4)),
        ((1, 2), (1, 2), (1, 2)),
        ((3, 4), (4,), (3, 4)),
    ],
)
def test_bug_any_split_keeps_to_the_degrees_listed(
    listed: tuple[int, ...] | None, aligned: tuple[int, ...], any_split: tuple[int, ...]
) -> None:
    """12 heads, nodes of 5 GPUs: every divisor, unless a power of two is left out."""
    instance = random_instance(0).but(search={"tensor_parallel": listed})
    group = instance.cluster.groups[0].but(gpus_per_node=5)
    instance = instance.but(cluster={"groups": (group,)})
    assert template_degrees(instance, group, NodeSplit.ALIGNED) == aligned
    assert template_degrees(instance, group, NodeSplit.ANY) == any_split


def test_nodes_hold_the_layers_of_all_their_stages() -> None:
    """The first node of TWO runs two stages."""
    assert layers_by_position(TWO) == (range(3), range(3, 5))
    fleet = [Pipeline(TWO, (4, 2), 1), Pipeline(THREE, (0, 1, 3), 1)]
    assert holdings(fleet) == {
        4: range(3),
        2: range(3, 5),
        0: range(2),
        1: range(2, 3),
        3: range(3, 5),
    }
