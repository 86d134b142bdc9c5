"""A plan whose stages have degrees of their own as one whose node groups have: one for each place.

A place is a node group with degrees. A machine that several stages share is a node of each of
theirs; which machine a node is tells what need not leave it.
"""

from formulations.costs.stage_places import with_places
from formulations.instance import Instance
from formulations.plan import Plan, Stage


def by_place(instance: Instance, plan: Plan) -> tuple[Instance, Plan, tuple[int, ...]]:
    """Instance and plan by place, and the node of the cluster that each node is."""
    cluster = instance.cluster
    each = [stage for replica in plan.replicas for stage in replica.stages]
    found = {(cluster.node_groups[stage.group.node], stage.degrees) for stage in each}
    places = sorted(found, key=lambda place: (place[0], place[1].tp, place[1].parts))
    wide, shape = with_places(instance, plan.shape, places)

    def moved(stage: Stage) -> Stage:
        j = cluster.node_groups[stage.group.node]
        first = wide.cluster.first_node[places.index((j, stage.degrees))]
        node = first + stage.group.node - cluster.first_node[j]
        return stage.model_copy(update={"group": stage.group.model_copy(update={"node": node})})

    replicas = tuple(
        replica.model_copy(update={"stages": tuple(map(moved, replica.stages))})
        for replica in plan.replicas
    )
    machines = tuple(
        cluster.first_node[j] + i for j, _ in places for i in range(cluster.groups[j].nodes)
    )
    return wide, plan.model_copy(update={"shape": shape, "replicas": replicas}), machines
