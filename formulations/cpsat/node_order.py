"""In which order the nodes stand, so which node group runs which slot: the free order of a model.

Sets. Node groups j with n_j nodes of c_j slots; slots s < S; stages k < p, devices where these
have several chunks: all of them lie on its slots, and the last sends to the first; N, nodes of one.
Parameters. NodeTerms of (j, a): what a node of group j brings if its first slot is a.
Variables. start[j, a]: a node of group j starts at slot a, for every a that is a sum of sizes of
other nodes; owner[s, j]: group j owns slot s; span[k, N]: stage k lies on N nodes; send[k, r];
inside[k], outside[k] of the gradient sync and of the gather; embedding. Where nodes stand in
several zones y, z: crosses[s, t, y, z], flows[k, y, z, n], visits[k, y], joins[k, y, z],
rings[y, z, n], lanes[y, z, n], n >= 0 a number of replicas or stages.
Objective. Step time, with the rest of the constraints: `step_time`.
Constraints.
(12) Tiling: every slot is covered by exactly one start.
(13) Every node is used: sum over a of start[j, a] = n_j.
(14) owner[s, j] = sum of start[j, a] over a that cover s.
(15) send[k, r] >= the term of every node that starts where it decides this transfer, and the
     term of n flows between zones if flows[k, y, z, n] and its ends' owners stand in y and z.
(16) Exactly one span[k, N], and sum of N span[k, N] = number of starts that overlap stage k.
(17) inside[k] >= the ring inside each node of the stage, bytes and start-up apart, as each is the
     largest over its nodes; outside[k] >= the ring between N nodes at each node's rate, if
     span[k, N], bytes and start-up apart; the same for the rate of n rings between zones if
     joins[k, y, z] and rings[y, z, n].
(18) embedding >= the term of every node, and the term of n lanes if lanes[y, z, n].
(19) crosses[s, s + dp, y, z] if groups of y and z own the slots; exactly one flows[k, y, z, n],
     with sum of n flows[k, y, z, n] >= sum over the slots of k of crosses.
(20) visits[k, y] if and only if a group of y owns a slot of k. joins[k, y, z] if k visits both,
     between which its ring may pass. Exactly one rings[y, z, n], with sum of n rings[y, z, n]
     >= sum over k of joins.
(21) lanes[y, z, n] as flows in (19), for slots r and (p - 1) dp + r in y and z or z and y.
(26) Not both owner[s, i] and owner[t, j] where the target runs no such order.
Assumptions. Nodes of a group are interchangeable and therefore have no names here.
Left out. Orders that differ only inside a group, for the same reason.
Size. O(J S) binary variables, O(J S R) rows, for sync times the largest N. Z zones add
O(Z^2 (S + p R)) binary variables, O(J^2 S R) rows for sends and O(Z^2 p^2 N) for sync.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate, chain

from ortools.sat.python import cp_model

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from formulations.cpsat.parts import Order, Split
from formulations.cpsat.rings import RingTimes, largest
from formulations.cpsat.terms import (
    Linear,
    Literal,
    enforced_maximum,
    require_at_most,
    total_of,
    value_of,
    weighted,
)
from formulations.cpsat.zones import ZoneVariables
from formulations.decisions import Start, only_order, possible_starts
from formulations.fixed import FixedOrder, message_ns
from formulations.slot_degrees import apart


class OrderVariables:
    """A free node order: `start`, see the header."""

    def __init__(self, model: cp_model.CpModel, tables: CostTables) -> None:
        self.model = model
        self.tables = tables
        self.placer = Placer(tables)
        self.start = {
            (j, a): model.new_bool_var(f"start[{j},{a}]") for j, a in possible_starts(tables)
        }
        slots = range(tables.shape.slots)
        for s in slots:
            model.add_exactly_one(literal for _, literal in self._over(s, s + 1))  # (12)
        for j, count in enumerate(tables.shape.nodes_used):
            own = [literal for key, literal in self.start.items() if key[0] == j]
            model.add(weighted([1] * len(own), own) == count)  # (13)
        self._owners = [self._owner_literals(s) for s in slots]
        owner = [dict(own) for own in self._owners]
        for (s, i), (t, j) in apart(tables.instance, tables.shape):  # (26)
            require_at_most(model, total_of(owner[s].get(i, 0), owner[t].get(j, 0)), 1)
        self._spans = [self._span_literals(k) for k in range(tables.shape.pp)]
        self._sends: dict[tuple[int, int], Linear] = {}
        self._zones = ZoneVariables(model, tables, self._owners)
        nodes = [
            [(j, literal, self.placer.terms(j, a)) for (j, a), literal in self._stage(k)]
            for k in range(tables.shape.pp)
        ]
        self._rings = RingTimes(model, tables, nodes, self._spans, self._zones)

    def _over(self, first: int, stop: int) -> list[tuple[Start, cp_model.IntVar]]:
        """Starts whose node covers one of the slots [first, stop)."""
        sizes = self.tables.slots_per_node
        return [
            ((j, a), literal)
            for (j, a), literal in self.start.items()
            if a < stop and a + sizes[j] > first
        ]

    def _owner_literals(self, slot: int) -> list[tuple[int, Literal]]:
        """(14)."""
        covering: dict[int, list[cp_model.IntVar]] = {}
        for (j, _), literal in self._over(slot, slot + 1):
            covering.setdefault(j, []).append(literal)
        if len(covering) == 1:
            return [(j, 1) for j in covering]
        return [(j, self._any(literals, f"owner[{slot},{j}]")) for j, literals in covering.items()]

    def _any(self, literals: list[cp_model.IntVar], name: str) -> Literal:
        """A literal that equals the sum of exclusive ones."""
        if len(literals) == 1:
            return literals[0]
        owner = self.model.new_bool_var(name)
        self.model.add(cp_model.LinearExpr.sum(literals) == owner)
        return owner

    def _span_literals(self, stage: int) -> dict[int, Literal]:
        """(16)."""
        dp = self.tables.shape.dp
        over = [literal for _, literal in self._over(stage * dp, (stage + 1) * dp)]
        most = min(dp, sum(self.tables.shape.nodes_used))
        if most == 1:
            return {1: 1}
        span: dict[int, Literal] = {
            n: self.model.new_bool_var(f"span[{stage},{n}]") for n in range(1, most + 1)
        }
        self.model.add_exactly_one(span.values())
        self.model.add(cp_model.LinearExpr.sum(over) == weighted(span.keys(), span.values()))
        return span

    def _send(self, stage: int, replica: int, split: Split) -> Linear:
        """(15)."""
        shape = self.tables.shape
        slot = stage % shape.pp * shape.dp + replica
        nodes = ((literal, self.placer.terms(*key)) for key, literal in self.start.items())
        known: list[tuple[tuple[Literal, ...], tuple[int, ...]]] = [
            ((literal,), node.send_ns[slot]) for literal, node in nodes if slot in node.send_ns
        ]
        known += self._zones.send_terms(slot)
        terms = [
            (literals, message_ns(self.tables, times, split, stage)) for literals, times in known
        ]
        upper = max((times[-1] for _, times in known), default=0)
        return enforced_maximum(self.model, terms, upper, f"send[{stage},{replica}]")

    def types(self, slot: int) -> Sequence[tuple[int, Literal]]:
        """Node groups that may own a slot, and whether they do."""
        return self._owners[slot]

    def nodes(self, stage: int) -> Sequence[tuple[int, Literal]]:
        """Node groups of the nodes that may overlap a stage, and whether they do."""
        return [(key[0], literal) for key, literal in self._stage(stage)]

    def _stage(self, stage: int) -> list[tuple[Start, cp_model.IntVar]]:
        dp = self.tables.shape.dp
        return self._over(stage * dp, (stage + 1) * dp)

    def column(self, replica: int) -> Hashable:
        """Every replica may differ from every other."""
        return replica

    def send(self, stage: int, replica: int, split: Split) -> Linear:
        """Transfer from a virtual stage to the next, ns."""
        if (stage, replica) not in self._sends:
            self._sends[stage, replica] = self._send(stage, replica, split)
        return self._sends[stage, replica]

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
        terms: Iterator[tuple[tuple[Literal, ...], int]] = (
            ((literal,), self.placer.terms(*key).embedding_ns)
            for key, literal in self.start.items()
        )
        known = chain(terms, self._zones.embedding_terms())
        return largest(self.model, known, "embedding")

    def hint(self, order: Sequence[int]) -> None:
        """Suggest an order."""
        sizes = self.tables.slots_per_node
        starts = set(zip(order, accumulate((sizes[j] for j in order), initial=0), strict=False))
        for key, literal in self.start.items():
            self.model.add_hint(literal, int(key in starts))

    def extract(self, values: Sequence[float]) -> tuple[int, ...]:
        """Node groups in node order in a solution."""
        chosen = [(a, j) for (j, a), literal in self.start.items() if value_of(literal, values)]
        return tuple(j for _, j in sorted(chosen))


def order_part(model: cp_model.CpModel, tables: CostTables) -> Order:
    """The free order; fixed where nodes of a single group leave no choice."""
    order = only_order(tables)
    return OrderVariables(model, tables) if order is None else FixedOrder(tables, order)
