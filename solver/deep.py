"""`verify --deep`: what a log claims at the word of a search is proved again.

By the verifier's own trying of every plan that may be faster, which shares no code with any engine;
where there are too many node orders for that, by another engine than the one that closed the shape.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from formulations.instance import Instance
from formulations.plan import Plan
from solver.document import PlanDocument
from solver.result import Reproof, ShapeRecord
from solver.search.reprove import by_other_engine
from solver.verify.bounds import Prover
from solver.verify.exhaust import exhaust
from solver.verify.lane_exhaust import exhaust_lanes
from solver.verify.records import claimed_ns
from solver.verify.space import PlanSpace

#: Seconds that every claim gets before any gets more.
FIRST_S = 1.0


@dataclass(frozen=True)
class Opinion:
    """Entry `index` of the log of shapes, and what was found out about it."""

    index: int
    record: ShapeRecord
    reproof: Reproof

    @property
    def field(self) -> str:
        """Where the claim stands."""
        return f"closed_shapes[{self.index}]"

    def problem(self, instance: Instance) -> str | None:
        """Field, found and expected if the claim is refuted, with the plan that does it."""
        plan, bound_ns = self.reproof.plan, self.record.bound_ns
        if plan is None:
            return None
        name = "reason" if bound_ns is None else "bound_ns"
        found = "infeasible" if bound_ns is None else bound_ns
        expected = f"a bound of at most {self.reproof.step_time_ns}, the step time of a plan"
        return f"{self.field}.{name}: found {found}, expected {expected}: {_shown(instance, plan)}"


def _shown(instance: Instance, plan: Plan) -> str:
    """Nodes, layers per stage and micro-batches per replica."""
    nodes = ", ".join(instance.cluster.node_names[node] for node in plan.node_order)
    layers = ", ".join(f"{a}-{b - 1}" for a, b in (s.layers for s in plan.replicas[0].stages))
    shares = ", ".join(str(replica.micro_batches) for replica in plan.replicas)
    return f"nodes {nodes}; layers {layers}; micro-batches {shares}"


class _Clock:
    """Time since the start against a limit."""

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s, self.begin = limit_s, time.monotonic()

    def left_s(self) -> float | None:
        """Seconds until the limit; None without one."""
        return None if self.limit_s is None else self.limit_s - (time.monotonic() - self.begin)

    def over(self) -> bool:
        """Whether the limit is reached."""
        left = self.left_s()
        return left is not None and left <= 0


def opinions(
    document: PlanDocument, entries: Sequence[int], time_limit_s: float | None = None
) -> Iterator[Opinion]:
    """What is found out about these entries of the log, in no fixed order.

    Each gets a short time first, so that a hard one does not keep the easy ones from their turn.
    Those that the limit leaves no time for are open.
    """
    clock, prover = _Clock(time_limit_s), Prover(PlanSpace(document.instance))
    later = []
    for index in entries:
        one = _opinion(document, prover, index, clock, _Clock(FIRST_S))
        if one is None or one.reproof.verdict == "open":
            later.append(index)
        else:
            yield one
    for index in later:
        yield _opinion(document, prover, index, clock) or _other(document, index, clock)


def _opinion(document: PlanDocument, prover: Prover, index: int, *clocks: _Clock) -> Opinion | None:
    """By trying every plan until one of the clocks is over; None if these are too many."""
    record = document.closed_shapes[index]
    below_ns = claimed_ns(document.instance, record)

    def over() -> bool:
        return any(clock.over() for clock in clocks)

    reproof = exhaust(prover, record.shape, below_ns, over)
    reproof = reproof or exhaust_lanes(prover, record.shape, below_ns, over)
    return None if reproof is None else Opinion(index, record, reproof)


def _other(document: PlanDocument, index: int, clock: _Clock) -> Opinion:
    """By another engine than the one that closed the shape."""
    record, instance = document.closed_shapes[index], document.instance
    reproof = by_other_engine(
        instance,
        record.shape,
        claimed_ns(instance, record),
        record.proof,
        clock.over,
        clock.left_s(),
    )
    return Opinion(index, record, reproof)
