"""In which order the nodes stand, so which node group runs which slot: free, or given.

Sets. Node groups j with n_j nodes of c_j slots; slots s < S; stages k < p, devices where these
have several chunks: all of them lie on its slots, and the last sends to the first; N, nodes of one.
Parameters. NodeTerms of (j, a): what a node of group j brings if its first slot is a.
Variables. start[j, a]: a node of group j starts at slot a, for every a that is a sum of sizes of
other nodes; owner[s, j]: group j owns slot s; span[k, N]: stage k lies on N nodes; send[k, r];
inside[k], outside[k] of the gradient sync and of the gather, bytes and start-up apart; embedding.
Where nodes stand in several zones y, z: those of `links`.
Objective. Step time, with the rest of the constraints: `step_time`.
Constraints.
(12) Tiling: every slot is covered by exactly one start.
(13) Every node is used: sum over a of start[j, a] = n_j.
(14) owner[s, j] = sum of start[j, a] over a that cover s.
(15) send[k, r] >= the term of the start that covers either of its two slots, and the term of n
     flows between zones if flows[k, y, z, n] and its ends' owners stand in y and z.
(16) Exactly one span[k, N], and sum of N span[k, N] = number of starts that overlap stage k.
(17) inside[k] >= the ring inside the node that covers each slot of stage k; outside[k] >= the ring
     between N nodes at that node's rate, if span[k, N], and at the rate of n rings between zones if
     joins[k, y, z] and rings[y, z, n]. Bytes and start-up are apart: each is the largest over the
     nodes.
(18) embedding >= the term of the start that covers a slot, for those of the tied stages, and the
     term of n lanes if lanes[y, z, n].
(19)-(21) What crosses between zones: see `links`.
(26) Not both owner[s, i] and owner[t, j] where the target runs no such order.
Assumptions. Nodes of a group are interchangeable and therefore have no names here.
Left out. Orders that differ only inside a group, for the same reason.
Size. O(J S) literals, O(J S R) rows, for sync times the largest N. Z zones add O(Z^2 (S + p R))
literals, O(J^2 S R) rows for sends and O(Z^2 p^2 N) for sync.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from formulations.costs.placement import NodeTerms, Placer, SyncPhase
from formulations.costs.sharding import lanes_like, layers_alike
from formulations.costs.stage_places import placement_of
from formulations.costs.tables import Array, CostTables
from formulations.costs.transfers import RingRate
from formulations.decisions import Given, Start, only_order, possible_starts
from formulations.models.layer_to_stage import Split
from formulations.models.links import ZoneVariables, stage_slots
from formulations.models.model import (
    Choice,
    Costs,
    Linear,
    Literal,
    Model,
    Pairs,
    Solution,
    Term,
    of_numbers,
    total_of,
    weighted,
)
from formulations.space.slots import apart


class FreeOrder:
    """A free node order: `start`, see the header."""

    def __init__(self, model: Model, tables: CostTables) -> None:
        self.model, self.tables, self.placer = model, tables, Placer(tables)
        self.start = {(j, a): model.literal(f"start_{j}_{a}") for j, a in possible_starts(tables)}
        config, sizes = tables.config, tables.slots_per_node
        #: [slot] starts whose node covers it
        self._covering = [
            [(j, a) for j, a in self.start if a <= s < a + sizes[j]] for s in range(config.slots)
        ]
        for covering in self._covering:
            model.exactly_one(12, [self.start[key] for key in covering])
        for j, count in enumerate(config.nodes_used):
            starts = [literal for key, literal in self.start.items() if key[0] == j]
            model.equal(13, total_of(*starts), count)
        self._spans = [self._span_literals(k) for k in range(config.pp)]
        self._owners = [self._owner_literals(s) for s in range(config.slots)]
        owner = [dict(owners) for owners in self._owners]
        for (s, i), (t, j) in apart(tables.instance, config):
            model.some_of(26, (), owner[s].get(i, 0), owner[t].get(j, 0))
        self._zones = ZoneVariables(model, tables, self._owners)
        self._sends: dict[tuple[int, int], Term] = {}

    def _span_literals(self, stage: int) -> dict[int, Literal]:
        """(16)."""
        dp = self.tables.config.dp
        num_spans = min(dp, sum(self.tables.config.nodes_used))
        if num_spans == 1:
            return {1: 1}
        span = {n: self.model.literal(f"span_{stage}_{n}") for n in range(1, num_spans + 1)}
        self.model.exactly_one(16, span.values())
        overlapping = {key for s in range(dp) for key in self._covering[stage * dp + s]}
        starts = [literal for key, literal in self.start.items() if key in overlapping]
        self.model.equal(16, weighted(span, span.values()), total_of(*starts))
        return {**span}

    def _owner_literals(self, slot: int) -> list[tuple[int, Literal]]:
        """(14)."""
        owners: dict[int, list[Linear]] = {}
        for key in self._covering[slot]:
            owners.setdefault(key[0], []).append(self.start[key])
        if len(owners) == 1:
            return [(j, 1) for j in owners]
        return [
            (j, self.model.joined(14, literals, f"owner_{slot}_{j}"))
            for j, literals in sorted(owners.items())
        ]

    def types(self, slot: int) -> Sequence[tuple[int, Literal]]:
        """Node groups that may own a slot, and whether they do; exactly one does."""
        return self._owners[slot]

    def column(self, replica: int) -> Hashable:
        """Every replica may differ from every other."""
        return replica

    def _choices(
        self, slots: Iterable[int], of_node: Callable[[Start, NodeTerms], Any]
    ) -> list[Choice]:
        """Of each slot the starts that cover it, with what their nodes bring."""
        return [
            ((), [(self.start[key], of_node(key, self.placer.terms(*key))) for key in covering])
            for covering in map(self._covering.__getitem__, slots)
        ]

    def send(self, stage: int, replica: int, split: Split) -> Term:
        """(15) Transfer from a virtual stage to the next, ns."""
        if (stage, replica) not in self._sends:
            config = self.tables.config
            slot = stage % config.pp * config.dp + replica
            ends = slot, (slot + config.dp) % config.slots
            choices = [*self._zones.sends(slot)]
            choices += self._choices(ends, lambda _, node: node.send_ns[slot])
            messages = {times_ns for _, options in choices for _, times_ns in options}
            costs = Costs(
                {times_ns: split.message_ns(self.tables, times_ns, stage) for times_ns in messages},
                lambda a, b: max(first - second for first, second in zip(a, b, strict=True)),
                {times_ns: max(times_ns) for times_ns in messages},
            )
            send = self.model.largest(15, costs, choices, f"send_{stage}_{replica}")
            self._sends[stage, replica] = send
        return self._sends[stage, replica]

    def sync(self, device: int, split: Split) -> Term:
        """Gradient sync of a device, ns."""
        sync = self._phase(self.placer.sync, device, split, "sync")
        if self.placer.across is None:
            return sync
        return total_of(sync, self._phase(self.placer.across, device, split, "across"))

    def gather(self, device: int, split: Split) -> Term:
        """Parameter gather of a device, ns."""
        if self.placer.gather is None:
            return 0
        return self._phase(self.placer.gather, device, split, "gather")

    def _phase(self, phase: SyncPhase, stage: int, split: Split, name: str) -> Term:
        """Sync or gather of a stage, ns: the slowest rings for layers of each kind."""
        parts = self._start_up(phase, stage, name)
        for i, layers in enumerate(layers_alike(self.tables.config, self.tables.gradient_bytes)):
            place = f"{stage}_{i}" if i else f"{stage}"
            parts += self._ring_bytes(phase, stage, split, layers, name, place)
        return total_of(*parts)

    def _slowest(
        self,
        stage: int,
        of_node: Callable[[Start, NodeTerms], Any],
        costs_of: Callable[[set[Any]], Costs[Any]],
        name: str,
        between: Iterable[Choice] | None = None,
    ) -> Term:
        """(17) The largest cost of the nodes of a stage.

        between: the same of zones that its ring passes; costs are then of pairs with the number of
        its nodes.
        """
        choices = self._choices(stage_slots(self.tables.config, stage), of_node)
        choices += between or ()
        costs = costs_of({term for _, options in choices for _, term in options})
        seconds = None if between is None else self._spans[stage]
        return self.model.largest(17, costs, choices, name, seconds)

    def _start_up(self, phase: SyncPhase, stage: int, name: str) -> list[Term]:
        """Latencies of the rings inside and between the nodes."""
        groups, spans = self.tables.instance.cluster.groups, self._spans[stage]
        return [
            self._slowest(
                stage,
                lambda _, node: phase.rings(node).latency_s[stage],
                lambda all_s: of_numbers({s: phase.latency_ns(s, 1, 0.0) for s in all_s}),
                f"{name}_inside_start_{stage}",
            ),
            self._slowest(
                stage,
                lambda key, _: groups[key[0]].inter_node.latency_s,
                lambda all_s: of_numbers(
                    {(s, n): phase.latency_ns(0.0, n, s) for s in all_s for n in spans}
                ),
                f"{name}_outside_start_{stage}",
                self._zones.ring_latencies(stage),
            ),
        ]

    def _ring_bytes(
        self, phase: SyncPhase, stage: int, split: Split, layers: Array, name: str, place: str
    ) -> list[Term]:
        """Bytes of some layers [L] inside and between the nodes."""
        config, spans = self.tables.config, self._spans[stage]
        stages = config.stages_of(stage)
        return [
            self._slowest(
                stage,
                lambda _, node: phase.rings(node).inside[stage],
                lambda rates: split.of_layers(
                    stages, {rate: phase.inside_ns(rate) * layers for rate in rates}
                ),
                f"{name}_inside_{place}",
            ),
            self._slowest(
                stage,
                lambda key, node: phase.rings(node).outside.get(
                    stage, RingRate(0.0, lanes_like(config, key[0]))
                ),
                lambda rates: split.of_layers(
                    stages, {(r, n): phase.outside_ns(r, n) * layers for r in rates for n in spans}
                ),
                f"{name}_outside_{place}",
                self._zones.ring_rates(stage),
            ),
        ]

    def embedding(self) -> Term:
        """(18) All-reduce of the tied embeddings, ns."""
        config = self.tables.config
        choices = list(self._zones.embeddings()) if self.tables.tied else []
        ends = {*range(config.dp), *range(config.slots - config.dp, config.slots)}
        choices += self._choices(ends, lambda _, node: node.embedding_ns)
        costs = of_numbers({ns: ns for _, options in choices for _, ns in options})
        return self.model.largest(18, costs, choices, "embedding")

    def assignment(self, order: Sequence[int]) -> Pairs:
        """The starts of an order."""
        sizes = self.tables.slots_per_node
        starts = set(zip(order, accumulate((sizes[j] for j in order), initial=0), strict=False))
        return [(literal, int(key in starts)) for key, literal in self.start.items()]

    def extract(self, solution: Solution) -> tuple[int, ...]:
        """Node groups in node order in a solution."""
        chosen = [(a, j) for (j, a), literal in self.start.items() if solution.value(literal)]
        return tuple(j for _, j in sorted(chosen))


class FixedOrder:
    """A node order that is given, as group indices, or a layout; its costs are `placement_of`."""

    def __init__(self, tables: CostTables, order: Sequence[int]) -> None:
        self.order, self._tables = tuple(order), tables
        self._costs = placement_of(tables, order)
        self._groups: list[int] = self._costs.group_of_slot.tolist()

    def types(self, slot: int) -> Sequence[tuple[int, Literal]]:
        """The node group that owns a slot."""
        return ((self._groups[slot], 1),)

    def column(self, replica: int) -> Hashable:
        """Equal for replicas with equal groups and transfers on all devices."""
        return (
            tuple(self._groups[replica :: self._tables.config.dp]),
            self._costs.send_ns[:, :, replica].tobytes(),
        )

    def send(self, stage: int, replica: int, split: Split) -> Term:
        """Transfer from a stage to the next, ns."""
        times_ns = self._costs.send_ns[:, stage % self._tables.config.pp, replica].tolist()
        return split.message_ns(self._tables, times_ns, stage)

    def sync(self, device: int, split: Split) -> Term:
        """Gradient sync of a device, ns."""
        return self._sum(device, split, self._costs.sync_ns, self._costs.sync_latency_ns)

    def gather(self, device: int, split: Split) -> Term:
        """Parameter gather of a device, ns."""
        return self._sum(device, split, self._costs.gather_ns, self._costs.gather_latency_ns)

    def _sum(self, device: int, split: Split, layers_ns: Array, start_ns: Array) -> Term:
        stages = self._tables.config.stages_of(device)
        return total_of(split.device_sum(stages, layers_ns[device]), int(start_ns[device]))

    def embedding(self) -> Term:
        """All-reduce of the tied embeddings, ns."""
        return self._costs.embedding_ns

    def assignment(self, order: Sequence[int]) -> Pairs:
        """No variables."""
        return ()

    def extract(self, solution: object) -> tuple[int, ...]:
        """The order given."""
        return self.order


Order: TypeAlias = FreeOrder | FixedOrder


def order_part(model: Model, tables: CostTables, given: Given) -> Order:
    """The free order; fixed where it is given, or nodes of a single group leave no choice."""
    order = only_order(tables) if given.order is None else given.order
    return FreeOrder(model, tables) if order is None else FixedOrder(tables, order)
