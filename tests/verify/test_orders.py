"""The verifier's graph of all node orders, and what it refutes with it."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from formulations.costs.intervals import interval_sums
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Link
from formulations.instance.search import ScheduleName
from formulations.space import PlanSpace, shapes
from solver.bounds.largest_share import shape_bound_ns
from solver.graph.problem import Intervals
from solver.verify import orders
from solver.verify.bounds import Prover
from solver.verify.orders import OrderGraph
from solver.verify.refutation import Refutation, question_of
from tests import brute_force
from tests.chain_instances import (
    AFTER_NS,
    FAST,
    SLOW,
    chain_instance,
    chain_tables,
    measured_chain,
)
from tests.random_shapes import random_optimum_ns, random_tables
from tests.seeds import few_and_many, one_each
from tests.small_instances import random_instance, workload

#: What a step is made of: lane by lane its node groups and transfers, and the tail over layers.
Content = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], bytes]


def refutation(tables: CostTables) -> Refutation:
    """The question for the shape of these tables."""
    return question_of(Prover(PlanSpace(tables.instance)), tables.shape)


def in_order(tables: CostTables, groups: Iterable[int]) -> tuple[int, ...]:
    """Groups of lanes; of a single stage, of which one order stands for all, sorted."""
    return tuple(groups) if tables.shape.pp > 1 else tuple(sorted(groups))


def by_graph(tables: CostTables) -> list[set[Content]]:
    """Per stage all that the graph knows of its steps."""
    graph = OrderGraph(tables)
    assert graph.steps is not None
    return [
        {
            (
                in_order(tables, step.group[i].tolist()),
                tuple(tuple(times) for times in step.send[i].tolist()),
                graph.epilogues.all_ns[step.tail[i]].tobytes(),
            )
            for i in range(len(step.source))
        }
        for step in graph.steps
    ]


def by_size(times: dict[int, int]) -> tuple[int, ...]:
    """Times by number of tensors, fewest first."""
    return tuple(times[n] for n in sorted(times))


def by_orders(tables: CostTables) -> list[set[Content]]:
    """The same from every order, each placed slot by slot."""
    dp, pp = tables.shape.dp, tables.shape.pp
    lanes, none = OrderGraph(tables).lanes, (0,) * len(tables.tensors)
    found: list[set[Content]] = [set() for _ in range(pp)]
    for order in brute_force.all_orders(tables):
        placed = brute_force.place(tables, order)
        for k in range(pp):
            slots = [k * dp + r for r in lanes]
            groups = placed.groups[k * dp : (k + 1) * dp]
            tail = interval_sums(np.array(placed.sync[k])) + placed.sync_start[k]
            tail += interval_sums(np.array(placed.gather[k])) + placed.gather_start[k]
            tail += np.max([interval_sums(tables.optimizer_ns[:, j]) for j in groups], axis=0)
            found[k].add(
                (
                    in_order(tables, (placed.groups[s] for s in slots)),
                    tuple(by_size(placed.send[s - dp]) if k else none for s in slots),
                    tail.tobytes(),
                )
            )
    return found


@pytest.mark.parametrize("seed", one_each(range(80), 3))
def test_steps_are_those_of_all_orders(seed: int) -> None:
    """Groups, transfers and tails of every stage are the ones that some order has, to the ns.

    Tails without tied embeddings: an order knows these only as a whole.
    """
    tables = random_tables(seed)
    known = 2 if tables.tied else 3
    cut = [
        [{one[:known] for one in stage} for stage in way(tables)] for way in (by_graph, by_orders)
    ]
    assert cut[0] == cut[1]


@pytest.mark.parametrize("seed", one_each(range(80), 3))
def test_transfers_between_zones_are_those_of_all_orders(seed: int) -> None:
    """Two neighbouring stages decide what the link between zones carries, to the ns."""
    tables = random_tables(seed, zones=True)
    known, all_known = (
        [{one[:2] for one in st} for st in way(tables)] for way in (by_graph, by_orders)
    )
    assert known == all_known


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
    return build_tables(tables.instance.model_copy(update=update), tables.shape)


def test_outer_stages_wait_for_the_slower_link_to_their_tied_embeddings() -> None:
    """Whichever node is first, so a claim that is 0.1 % too high is not refuted, the optimum is."""
    tables = tied_chain()
    best = brute_force.optimum_ns(tables)
    assert best is not None
    assert refutation(tables).refutes(best)
    assert not refutation(tables).refutes(best * 1001 // 1000)


@pytest.mark.parametrize(("second", "bound_ns"), [(SLOW, 72_000_000), (FAST, 51_500_000)])
def test_bottleneck_by_hand(second: tuple[str, float, float], bound_ns: int) -> None:
    """As `test_pipeline_bound_by_hand`: 27 + 3 * 15 ms, or the fast GPU last, 19.5 + 32 ms."""
    question = refutation(measured_chain(second))
    assert question.refutes(bound_ns + AFTER_NS)
    assert not question.refutes(bound_ns + AFTER_NS + 1)


@pytest.mark.parametrize(("schedule", "bound_ms"), [("1f1b", 146), ("gpipe", 112)])
def test_rounds_by_hand(schedule: ScheduleName, bound_ms: int) -> None:
    """With 20 ms per transfer the latency is 27 + 40 = 67 ms. GPipe: 3 * 15 ms more.

    1F1B: two of the four micro-batches go round, 67 ms each, and between them stage 0 works on one
    more for 12 ms, that with the least work.
    """
    tables = measured_chain(SLOW, message_bytes=20_000_000)
    shape = tables.shape.but(schedule=schedule)
    question = question_of(Prover(PlanSpace(tables.instance)), shape)
    bound_ns = bound_ms * 1_000_000 + AFTER_NS - 2000  # without two transfers of 1 us
    assert question.refutes(bound_ns)
    assert not question.refutes(bound_ns + 1)


def some_tables(seeds: Sequence[int]) -> list[CostTables]:
    """Costs of all shapes of some tiny instances."""
    return [
        build_tables(one, shape) for one in map(random_instance, seeds) for shape in shapes(one)
    ]


@pytest.mark.parametrize("seeds", few_and_many(range(30), 4))
def test_no_plan_is_refuted(seeds: Sequence[int]) -> None:
    """The best plan of a shape is never ruled out, and mostly just reached."""
    exact = planned = 0
    for tables in some_tables(seeds):
        best = brute_force.optimum_ns(tables)
        if best is not None:
            question = refutation(tables)
            assert not question.refutes(best + 1)
            exact += question.refutes(best)
            planned += 1
    assert exact > planned / 2 > 0


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(120), 3))
def test_no_plan_is_refuted_with_uneven_shares_or_zones(seeds: Sequence[int], zones: bool) -> None:
    """The same for shapes of two types and node sizes, uneven, blocking, or over zones."""
    for seed in seeds:
        tables, best = random_tables(seed, zones), random_optimum_ns(seed, zones)
        assert best is None or not refutation(tables).refutes(best + 1), seed


@pytest.mark.parametrize("seeds", few_and_many(range(160), 3))
def test_what_the_search_bounds_is_refuted(seeds: Sequence[int]) -> None:
    """The verifier's argument is at least as strong as the shape bound of the search."""
    for seed in seeds:
        tables = random_tables(seed)
        assert refutation(tables).refutes(shape_bound_ns(Intervals(tables), 1 << 50)), seed


def test_too_many_orders_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a graph nothing is refuted, not even the impossible."""
    tables = chain_tables(chain_instance([3, 3], [SLOW, FAST]))
    assert refutation(tables).refutes(1)
    monkeypatch.setattr(orders, "MOST_STEPS", 1)
    assert not refutation(tables).refutes(1)


def test_nothing_fits_refutes_any_time() -> None:
    """With too little memory no step time is possible."""
    tables = chain_tables(chain_instance([3, 3], [SLOW, (*FAST[:2], 0.1)]))
    assert brute_force.optimum_ns(tables) is None
    assert refutation(tables).refutes(1 << 56)
