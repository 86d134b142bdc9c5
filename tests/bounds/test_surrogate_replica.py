"""One replica in place of all: as sharp as it was; orders follow the groups of its stages."""

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables, build_tables
from solver.bounds.node_classes import classes_of
from solver.bounds.surrogate_replica import Relaxation, SurrogateReplica, order_along
from solver.graph.problem import Intervals
from tests.graph.drawn import best_ns, drawn_tables, figures, problems
from tests.random_configs import crowded_instance
from tests.recorded import Cases, digest, recorded, summary
from tests.small_instances import plain_config


def three_types() -> CostTables:
    """Six nodes of one GPU: two fast ones, two slow ones, and two a little less slow."""
    instance = crowded_instance(1)
    fast, slow = sorted(instance.cluster.groups, key=lambda group: -group.gpu.peak_flops["bf16"])
    peak = {"bf16": slow.gpu.peak_flops["bf16"] * 1.01}
    types = (fast, slow, slow.but(name="near", gpu={"name": "near", "peak_flops": peak}))
    groups = tuple(g.but(nodes=2, gpus_per_node=1) for g in types)
    instance = instance.but(cluster={"groups": groups})
    return build_tables(instance, plain_config((2, 2, 2), dp=1, pp=6))


def test_bug_an_order_takes_no_nodes_that_later_stages_want() -> None:
    """Where the wanted nodes run out, others of like speed come, not fast ones without a spare."""
    assert order_along(three_types(), (0, 2, 2, 2, 2, 0)) == (0, 2, 2, 1, 1, 0)


@recorded("surrogate_replica")
def test_relaxations_are_the_recorded_ones() -> Cases:
    """Below cutoffs near the optimum; weights in few units where graphs have to be small."""
    for name, costs in list(drawn_tables().items())[::2]:
        config, all_orders = costs.config, f"{name} all orders"
        if all_orders not in problems() or config.pp == 1 or costs.num_micro_batches % config.dp:
            continue
        intervals, placer = Intervals(costs), Placer(costs)
        best, replica = (
            best_ns(all_orders),
            SurrogateReplica(intervals, placer, classes_of(intervals)),
        )
        for part in () if best is None else (18, 20, 22):
            relaxation = Relaxation(replica, (best or 0) * part // 20)
            refuted = relaxation.refutes(lambda: False)
            left = [int(mask.sum()) for mask in relaxation.common]
            ways = relaxation.bound_ns, relaxation.groups, relaxation.reach_ns
            problem = relaxation.problem and figures(relaxation.problem)
            order = relaxation.groups and order_along(costs, relaxation.groups)
            yield f"{name} {part}", [refuted, left, ways, order, problem]
        weights = [int(replica.weighed(w, u).most[0]) for w in replica.weightings for u in (1, 2)]
        small = [
            replica.graph(replica.allowed, replica.weighed(replica.weightings[-1], u), most) is None
            for u in (1, 4)
            for most in (10, 100, 1000)
        ]
        yield name, [weights, small, digest(summary(replica.weightings))]
