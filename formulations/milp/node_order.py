"""In which order the nodes stand, so which node group runs which slot: the free order of a model.

Sets. Node groups j with n_j nodes of c_j slots; slots s < S; stages k < p, devices where these
have several chunks: all of them lie on its slots, and the last sends to the first; N, nodes of one.
Parameters. NodeTerms of (j, a): what a node of group j brings if its first slot is a.
Variables. start[j, a], binary: a node of group j starts at slot a, for every a that is a sum of
sizes of other nodes; span[k, N], binary: stage k lies on N nodes; continuous: send[k, r],
inside[k], outside[k] of the gradient sync and of the gather, bytes and start-up apart, embedding.
owner[s, j], group j owns slot s, is no variable but the sum of (14). Where nodes stand in several
zones y, z, binary: crosses[s, t, y, z], flows[k, y, z, n], visits[k, y], joins[k, y, z],
rings[y, z, n], lanes[y, z, n], n >= 0 a number of replicas or stages.
Objective. Step time, with the rest of the constraints: `step_time`.
Constraints.
(12) Tiling: every slot is covered by exactly one start.
(13) Every node is used: sum over a of start[j, a] = n_j.
(14) owner[s, j] = sum of start[j, a] over a that cover s.
(15) send[k, r] >= sum of the terms of the starts that cover either of its two slots, and sum over
     n of the terms of n flows between zones, less the largest of them for either end whose owner
     does not stand there.
(16) Exactly one span[k, N], and sum of N span[k, N] = number of starts that overlap stage k.
(17) For every slot of stage k: inside[k] >= the ring inside the node that covers it, outside[k] >=
     the ring between N nodes at that node's rate, each less what it may cost more than the node
     and span that hold; outside[k] >= the same at the rate of n rings between zones, less all of
     it unless joins[k, y, z].
(18) embedding >= sum of the terms of the starts that cover a slot, for those of the tied stages,
     and sum of the terms of n lanes.
(19) crosses[s, s + dp, y, z] >= owners of s in y + owners of s + dp in z - 1; exactly one
     flows[k, y, z, n], with sum of n flows[k, y, z, n] >= sum over the slots of k of crosses.
(20) visits[k, y] >= owners in y of each slot of k, <= their sum. joins[k, y, z] >= visits of both
     - 1: its ring may pass between them. Exactly one rings[y, z, n], with sum of n rings[y, z, n]
     >= sum over k of joins.
(21) lanes[y, z, n] as flows in (19), for slots r and (p - 1) dp + r in y and z or z and y.
(26) Not both owner[s, i] and owner[t, j] where the target runs no such order.
Assumptions. Nodes of a group are interchangeable and therefore have no names here. Of the starts
that cover one slot exactly one holds, so their terms can be added up, where the CP-SAT model
compares each with the maximum.
Left out. Orders that differ only inside a group, for the same reason.
Size. O(J S) binary variables; O(S) rows of O(c) terms per maximum of numbers; for sums over layers
O(S q) rows, q different rates times spans. Z zones add O(Z^2 (S + p R)) binary variables,
O(J^2 S) rows for sends and O(Z^2 p^2 N) for sync.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pulp

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from formulations.decisions import Start, only_order, possible_starts
from formulations.fixed import FixedOrder
from formulations.milp.big_m import largest_value
from formulations.milp.covering import Covering
from formulations.milp.parts import Order, Split, Values
from formulations.milp.rings import RingTimes
from formulations.milp.terms import (
    Linear,
    Literal,
    binary,
    maximum,
    require_at_most,
    require_equal,
    total_of,
    weighted,
)
from formulations.milp.zones import ZoneVariables
from formulations.slot_degrees import apart


class OrderVariables:
    """A free node order: `start`, see the header."""

    def __init__(self, model: pulp.LpProblem, tables: CostTables) -> None:
        self.model = model
        self.tables = tables
        self.placer = Placer(tables)
        self.start = {(j, a): binary(model, f"start_{j}_{a}") for j, a in possible_starts(tables)}
        self._covering = Covering(model, tables, self.start)
        for covering in self._covering.starts:
            require_equal(model, 12, total_of(*(self.start[key] for key in covering)), 1)
        for j, count in enumerate(tables.shape.nodes_used):
            own = [variable for key, variable in self.start.items() if key[0] == j]
            require_equal(model, 13, total_of(*own), count)
        self._spans = [self._span_variables(k) for k in range(tables.shape.pp)]
        self._sends: dict[tuple[int, int], Linear] = {}
        self._messages: dict[tuple[int, int], Linear] = {}
        self._owners = [self._owner_literals(s) for s in range(tables.shape.slots)]
        owner = [dict(own) for own in self._owners]
        for (s, i), (t, j) in apart(tables.instance, tables.shape):
            both = total_of(owner[s].get(i, 0), owner[t].get(j, 0))
            require_at_most(model, 26, both, 1)
        self._zones = ZoneVariables(model, tables, self._owners)
        self._rings = RingTimes(tables, self.placer, self._covering, self._spans, self._zones)

    def _overlapping(self, stage: int) -> list[Start]:
        """Starts whose node covers one of the slots of a stage."""
        return list(
            dict.fromkeys(
                key for s in self._covering.slots(stage) for key in self._covering.starts[s]
            )
        )

    def _span_variables(self, stage: int) -> dict[int, Literal]:
        """(16)."""
        most = min(self.tables.shape.dp, sum(self.tables.shape.nodes_used))
        if most == 1:
            return {1: 1}
        span: dict[int, Literal] = {
            n: binary(self.model, f"span_{stage}_{n}") for n in range(1, most + 1)
        }
        over = total_of(*(self.start[key] for key in self._overlapping(stage)))
        require_equal(self.model, 16, total_of(*span.values()), 1)
        require_equal(self.model, 16, weighted(span, span.values()), over)
        return span

    def _owner_literals(self, slot: int) -> list[tuple[int, Literal]]:
        """(14)."""
        owners: dict[int, list[Literal]] = {}
        for key in self._covering.starts[slot]:
            owners.setdefault(key[0], []).append(self.start[key])
        if len(owners) == 1:
            return [(j, 1) for j in owners]
        return [(j, total_of(*literals)) for j, literals in sorted(owners.items())]

    def types(self, slot: int) -> Sequence[tuple[int, Literal]]:
        """Node groups that may own a slot, and whether they do."""
        return self._owners[slot]

    def column(self, replica: int) -> Hashable:
        """Every replica may differ from every other."""
        return replica

    def send(self, stage: int, replica: int, split: Split) -> Linear:
        """(15) Transfer from a virtual stage to the next, ns.

        At least the message of every kind; that of a larger one than the split makes it, less all.
        """
        shape = self.tables.shape
        slot = stage % shape.pp * shape.dp + replica
        if (stage, replica) not in self._sends:
            known = [
                (self._message(slot, kind), self._exceeds(stage, kind, split))
                for kind in range(len(self.tables.tensors))
            ]
            terms = []
            for message, exceeds in known:
                most = largest_value(message)
                terms.append(weighted([1, -most], [message, exceeds]) if exceeds else message)
            upper = max(largest_value(message) for message, _ in known)
            name = f"send_{stage}_{replica}"
            self._sends[stage, replica] = maximum(self.model, 15, terms, name, upper)
        return self._sends[stage, replica]

    def _exceeds(self, stage: int, kind: int, split: Split) -> Linear:
        """Whether a kind of message is larger than that behind the last layer of a stage."""
        if kind == 0:
            return 0
        smaller = (self.tables.message_kind[1:] < kind).astype(np.int64)
        return split.sum_up_to(stage, np.diff(smaller, prepend=0))

    def _message(self, slot: int, kind: int) -> Linear:
        """A message of one kind from a slot."""
        shape = self.tables.shape
        if (slot, kind) not in self._messages:
            self._messages[slot, kind] = self._covering.largest(
                15,
                (slot, (slot + shape.dp) % shape.slots),
                lambda key: self.placer.terms(*key).send_ns[slot][kind],
                f"message_{slot}_{kind}",
                self._zones.send_terms(slot, kind),
            )
        return self._messages[slot, kind]

    def sync(self, device: int, split: Split) -> Linear:
        """Gradient sync of a device, ns."""
        return self._rings.phase(self.placer.sync, device, split, "sync")

    def gather(self, device: int, split: Split) -> Linear:
        """Parameter gather of a device, ns."""
        if self.placer.gather is None:
            return 0
        return self._rings.phase(self.placer.gather, device, split, "gather")

    def embedding(self) -> Linear:
        """(18)."""
        return self._covering.largest(
            18,
            {*self._covering.slots(0), *self._covering.slots(self.tables.shape.pp - 1)},
            lambda key: self.placer.terms(*key).embedding_ns,
            "embedding",
            self._zones.embedding_terms(),
        )

    def assignment(self, order: Sequence[int]) -> Iterator[tuple[pulp.LpVariable, int]]:
        """The starts of an order."""
        sizes = self.tables.slots_per_node
        starts = set(zip(order, accumulate((sizes[j] for j in order), initial=0), strict=False))
        for key, variable in self.start.items():
            yield variable, int(key in starts)

    def extract(self, values: Values) -> tuple[int, ...]:
        """Node groups in node order in a solution."""
        chosen = [(a, j) for (j, a), variable in self.start.items() if values[variable.name]]
        return tuple(j for _, j in sorted(chosen))


def order_part(model: pulp.LpProblem, tables: CostTables) -> Order:
    """The free order; fixed where nodes of a single group leave no choice."""
    order = only_order(tables)
    return OrderVariables(model, tables) if order is None else FixedOrder(tables, order)
