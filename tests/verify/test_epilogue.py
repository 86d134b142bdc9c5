"""What follows the last backward of a stage: tied embeddings."""

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Link
from formulations.space import PlanSpace
from solver.verify.bounds import Prover
from solver.verify.orders import OrderGraph
from solver.verify.refutation import question_of
from tests import brute_force
from tests.chain_instances import SLOW, chain_instance, chain_tables
from tests.small_instances import workload


def test_tied_embeddings_are_in_the_tails_of_the_outer_stages() -> None:
    """512 rows (500, padded) of 2000 fp32 gradients, 4.096 MB, at 1 GB/s: 4.096 ms."""
    plain = chain_instance([1, 1, 1], [SLOW] * 3)
    tied = workload(list(plain.workload.layers), 4, 1000, tied=True)
    graph = OrderGraph(chain_tables(plain.but(workload=tied)))
    times = [graph.epilogues.embeddings[step.tail[0]] for step in graph.built]
    assert times == [4_096_000, 0, 4_096_000]


def tied_chain() -> CostTables:
    """Two blocks on two equal GPUs, tied embeddings; one of the nodes has half of the other's link.

    Their all-reduce takes 4.096 ms over the faster link, and as both have it, 8.192 ms.
    """
    tables = chain_tables(chain_instance([1, 1], [SLOW, SLOW]))
    first, second = tables.instance.cluster.groups
    slower = Link(bandwidth_bytes_per_s=0.5e9, latency_s=0)
    groups = (first, second.but(inter_node=slower))
    layers = list(tables.instance.workload.layers)
    update = {
        "workload": workload(layers, 4, 1000, tied=True),
        "cluster": tables.instance.cluster.but(groups=groups),
    }
    return build_tables(tables.instance.model_copy(update=update), tables.config)


def test_outer_stages_wait_for_the_slower_link_to_their_tied_embeddings() -> None:
    """Whichever node is first, so a claim that is 0.1 % too high is not refuted, the optimum is."""
    tables = tied_chain()
    best = brute_force.optimum_ns(tables)
    assert best is not None
    question = question_of(Prover(PlanSpace(tables.instance)), tables.config)
    assert question.refutes(best)
    assert not question.refutes(best * 1001 // 1000)
