"""Templates for fleets: there is a fleet as long as the nodes left hold the model in any way."""

import random
from collections.abc import Sequence

import pytest

from formulations.costs.template_costs import template_costs
from formulations.instance import Instance
from formulations.node_sharing import NodeSplit
from formulations.space import pipeline_strategies
from solver.fleet_document import FleetDocument
from solver.fleets.designs import designs_of, fleet_templates
from solver.fleets.fleet import next_fleet, start_fleet
from solver.fleets.recovery import Horizon, RecoveryError
from solver.fleets.template_document import templates_document
from solver.layered.places import place_costs
from solver.replay.policies import instance_with
from solver.templates.generate import NoTemplateError, TemplateGenerator, TemplateOptions
from solver.verify import verify_fleet
from tests.random_fleets import enlarged
from tests.seeds import one_each
from tests.template_cases import all_templates, recomputing

HOUR = Horizon(3600 * 10**9)
ONE = TemplateOptions(micro_batch=1)


def holds_a_step(instance: Instance, nodes: Sequence[str]) -> bool:
    """Whether any template on some of the nodes has room for all micro-batches of 1, one by one."""
    groups = [name.rpartition("-")[0] for name in nodes]
    counts = [groups.count(group.name) for group in instance.cluster.groups]
    left = instance_with(instance, counts)
    blocks = [layer.is_block for layer in left.workload.layers]
    return any(
        recomputing(left, strategy, template, left.workload.global_batch) is not None
        for strategy in pipeline_strategies(left, 1)
        for number in range(1, len(nodes) + 1)
        for template in all_templates(
            place_costs(left, strategy, NodeSplit.ALIGNED).several, number
        )
        if left.search.embedding_only_stages
        or all(any(blocks[slice(*stage.layers)]) for stage in template.stages)
    )


def first_fleet(instance: Instance) -> FleetDocument | None:
    """One fault, micro-batches of 1; None where the cluster has no room for that."""
    try:
        document = templates_document(TemplateGenerator(instance, ONE), 1)
        return start_fleet(instance, document.designs, 1)
    except (NoTemplateError, RecoveryError):
        return None


# 6: one node of the larger type holds the model, two of any do. 9, 15, 116: the share of a step
# leaves room that all of it does not.
@pytest.mark.parametrize("seed", [6, 9, 15, 116, *one_each(range(60), 20)])
def test_bug_there_is_a_fleet_until_no_template_holds_a_step(seed: int) -> None:
    """Nodes are lost one by one; once there is no fleet, no template of all fits what is left."""
    instance = enlarged(seed)
    fleet = first_fleet(instance)
    names = list(instance.cluster.node_names)
    random.Random(seed).shuffle(names)
    while fleet is not None and len(names) > 1:
        lost = names.pop()
        try:
            fleet = next_fleet(fleet, [lost], [], HOUR)
        except RecoveryError:
            assert not holds_a_step(instance, names)
            break
        assert verify_fleet(fleet).problems == ()


def test_mixes_below_n0_that_hold_the_model_have_templates() -> None:
    """Of instance 6 two nodes of any type hold the model, and one of the second type does."""
    generator = TemplateGenerator(enlarged(6), ONE)
    assert generator.least_nodes == 2
    found = fleet_templates(generator, [2])
    assert [one.nodes for one in found] == [1, 2, 2, 2]
    assert found[0].outcome.template is not None
    assert found[0].outcome.template.node_groups == (1,)


def test_templates_with_room_for_a_share_have_others_beside_them() -> None:
    """Of instance 116 one node has room for its share, 2 of 6 micro-batches; two have for all."""
    instance = enlarged(116)
    generator = TemplateGenerator(instance, ONE)
    assert generator.least_nodes == 1
    assert instance.workload.global_batch == 6
    rooms = [
        (one.template.num_nodes, template_costs(instance, one.strategy, one.template).fits(6))
        for one in designs_of(fleet_templates(generator, [1]))
    ]
    assert rooms == [(1, False), (2, True), (3, True)]


def test_bug_pipelines_of_fewer_nodes_than_n0() -> None:
    """Of instance 12 any three of four nodes hold the model, and some pairs: two pipelines fit."""
    generator = TemplateGenerator(enlarged(12), ONE)
    document = templates_document(generator, 1)
    assert (document.least_nodes, document.available) == (3, 4)
    [line] = document.coverage
    assert line.startswith("Of any nodes, 2 pipelines of 3 nodes or more need 6 nodes, the cluster")
    assert len(start_fleet(generator.instance, document.designs, 1).pipelines) == 2
    with pytest.raises(NoTemplateError, match=r"2 pipelines at once, not for 3; .* up to 1 faults"):
        templates_document(generator, 2)
