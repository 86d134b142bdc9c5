"""Templates: what is one, and what is refused; layers on the nodes of pipelines."""

import pytest
from pydantic import ValidationError

from formulations.costs.template_costs import template_degrees
from formulations.fleet import Pipeline, Template, holdings, layers_by_position, stage_on
from formulations.node_sharing import NodeSplit
from formulations.plan import Stage
from tests.formulations.test_transition import THREE, TWO
from tests.refusals import refusals
from tests.small_instances import random_instance


def stage(start: int, end: int, node: int, first_gpu: int, gpus: int) -> Stage:
    return stage_on(layers=(start, end), node=node, first_gpu=first_gpu, gpus=gpus)


#: Two nodes of group 1 and one of group 0: stages of 4 GPUs, of 2 and 2, of 2 (and 2 idle).
FIGURES = ((0, 3, 0, 0, 4), (3, 4, 1, 0, 2), (4, 6, 1, 2, 2), (6, 9, 2, 0, 2))
GOOD = tuple(stage(*figures) for figures in FIGURES)


@refusals("templates")
def test_broken_templates_are_refused(text: str, message: str) -> None:
    """Gaps and overlaps of layers, shared GPUs, nodes without a stage or visited twice."""
    position, figures = text.split(": ")
    at, wrong = int(position), stage(*map(int, figures.split(", ")))
    stages = (*GOOD[:at], wrong, *GOOD[at + 1 :])
    if "goes back" in message:
        stages = (*stages[:3], stage(6, 7, 1, 4, 1), stage(7, 9, 2, 0, 2))
    with pytest.raises(ValidationError, match=message):
        Template(node_groups=(1, 1, 0), stages=stages)


def test_bug_any_split_keeps_to_the_degrees_listed() -> None:
    """12 heads, nodes of 5 GPUs: every divisor, unless a power of two is left out."""
    instance = random_instance(0)
    group = instance.cluster.groups[0].but(gpus_per_node=5)
    instance = instance.but(cluster={"groups": (group,)})
    listed = (None, (1, 2, 4), (1, 2), (3, 4))
    spaces = [instance.but(search={"tensor_parallel": each}) for each in listed]
    aligned = [template_degrees(each, group, NodeSplit.ALIGNED) for each in spaces]
    assert aligned == [(1, 2, 4), (1, 2, 4), (1, 2), (4,)]
    either = [template_degrees(each, group, NodeSplit.ANY) for each in spaces]
    assert either == [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2), (3, 4)]


def test_nodes_hold_the_layers_of_all_their_stages() -> None:
    assert layers_by_position(TWO) == (range(3), range(3, 5))
    fleet = [Pipeline(TWO, (4, 2), 1), Pipeline(THREE, (0, 1, 3), 1)]
    assert holdings(fleet) == {
        4: range(3),
        2: range(3, 5),
        0: range(2),
        1: range(2, 3),
        3: range(3, 5),
    }
