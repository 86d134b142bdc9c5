"""Every plan of a shape, one by one, where these are few: of devices with several chunks of layers.

The paths of `families` are those of one chunk per device. Micro-batches of interleaved schedules
are the same for all replicas, so orders of the nodes and splits are all that there is to choose.
"""

from collections.abc import Iterator
from itertools import combinations, pairwise
from math import comb, factorial, prod

from formulations.plan import Shape
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.clock import Clock
from solver.verify.exhaust import Outcome
from solver.verify.recount import Recount

#: With more plans none is tried.
MOST_PLANS = 5_000


def try_every_plan(prover: Prover, shape: Shape, below_ns: int, clock: Clock) -> Outcome | None:
    """Whether any plan has a step time below this; None if there are too many to try.

    Raises TimeUpError.
    """
    nodes, length = shape.nodes_used, len(prover.layers)
    orders = factorial(sum(nodes)) // prod(map(factorial, nodes))
    even = shape.dp == 1 or prover.instance.search.micro_batches == "even"
    if not even or orders * comb(length - 1, shape.num_stages - 1) > MOST_PLANS:
        return None
    total = prover.instance.workload.global_batch // shape.micro_batch
    shares = [total // shape.dp] * shape.dp
    for order in _orders(nodes):
        for cuts in combinations(range(1, length), shape.num_stages - 1):
            clock.check()
            ends = [0, *cuts, length]
            if not all(prover.enough_blocks[a, b] for a, b in pairwise(ends)):
                continue
            plan = prover.plan(shape, order, ends, shares)
            costs = Recount(prover.instance, plan).costs()
            fits = bool((costs.memory_bytes <= costs.limit_bytes).all())
            if fits and (time_ns := step_time_ns(costs)) < below_ns:
                return Outcome(True, plan, time_ns)
    return Outcome(True)


def _orders(nodes: tuple[int, ...]) -> Iterator[list[int]]:
    """Every order of the nodes, told apart by group."""
    if not any(nodes):
        yield []
    for j, count in enumerate(nodes):
        if count:
            for rest in _orders((*nodes[:j], count - 1, *nodes[j + 1 :])):
                yield [j, *rest]
