"""Plans and shapes of a family's widest cluster, as plans and shapes of one of its clusters."""

from formulations.instance.family import Counts, Family
from formulations.plan import Group, Plan, Shape


def member_shape(shape: Shape) -> Shape:
    """The same without node groups that it does not use."""
    used = tuple(count for count in shape.nodes_used if count)
    return shape.model_copy(update={"nodes_used": used, "degrees": tuple(shape.degrees_used)})


def member_plan(family: Family, plan: Plan) -> Plan:
    """The plan on the cluster of just the nodes that it uses, its nodes numbered anew."""
    used: Counts = plan.shape.nodes_used
    wide = family.instance.cluster.first_node
    number: dict[int, int] = {}
    for first, count in zip(wide, used, strict=True):
        number |= {first + i: len(number) + i for i in range(count)}

    def moved(group: Group) -> Group:
        return group.model_copy(update={"node": number[group.node]})

    replicas = tuple(
        replica.model_copy(
            update={
                "stages": tuple(
                    stage.model_copy(update={"group": moved(stage.group)})
                    for stage in replica.stages
                )
            }
        )
        for replica in plan.replicas
    )
    order = tuple(number[node] for node in plan.node_order)
    return Plan(shape=member_shape(plan.shape), node_order=order, replicas=replicas)
