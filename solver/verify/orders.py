"""All node orders of a shape at once: which nodes can hold which stage, and what that costs.

A node of group j covers c_j slots in a row; stage k of replica r has slot k dp + r. Going through
the slots from the first to the last, what is still open after a stage depends only on how many
nodes of each group are used up and on the nodes of that stage. So orders are paths through a graph
with such states; a step places one stage. Replicas that are always on the same nodes are a lane:
blocks of q = gcd(dp, all c_j used) replicas.

What is told apart of the nodes used up is a tally: weights of the groups that add up. With one
weight per group, 1 for itself, those are all orders. With fewer it is more than these, and a
smaller graph: every order is still a path, as its tally is what the nodes of the shape weigh.

Costs of a step are those of `recount`, and exact but for links between zones. What a stage sends
over these is known, as it is decided by that stage and the one before. Of rings between zones only
the stage's own are counted, not those of other stages that share the link, and tied embeddings
that cross not at all: a plan takes no less time. Where no stage is to lie in two zones (`apart`)
there are no such rings, and all replicas cross together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from math import gcd

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.costs.collectives import ALL_REDUCE, ring_latency_s, ring_share
from formulations.costs.memory import layer_memory
from formulations.instance import Instance, Link
from formulations.plan import Shape
from formulations.units import NANOSECONDS_PER_SECOND, ceil_ns
from solver.verify.bounds import interval_sums
from solver.verify.volumes import (
    collective_factors,
    message_bytes,
    num_holders,
    tied_bytes,
    touched_bytes,
)
from solver.verify.zone_links import passing, zone_link

Array = NDArray[np.int64]

#: With more steps times lanes for one stage, the graph is not built.
MOST_STEPS = 40_000

Used = tuple[int, ...]  #: what the nodes used up weigh, by the dimensions of a tally
Member = tuple[int, int, int]  #: group of a node, its slots of a stage, rings over its border


def _ceil_all(seconds: ArrayLike) -> Array:
    """Nanoseconds, each rounded up as `ceil_ns` does."""
    exact = np.asarray(seconds, dtype=np.float64) * NANOSECONDS_PER_SECOND
    whole: Array = np.ceil(exact * (1 - 1e-12)).astype(np.int64)
    return whole


@dataclass(frozen=True)
class Spot:
    """A node by its group and the slots that it covers."""

    group: int
    slots: range


State = tuple[Used, tuple[Spot, ...]]


@dataclass(frozen=True)
class Tally:
    """weights: [J][D] what a node of a group adds; most: [D] what all nodes together may."""

    weights: tuple[Used, ...]
    most: Used

    def plus(self, used: Used, group: int) -> Used | None:
        """With a node more; None if that is too much."""
        after = tuple(map(sum, zip(used, self.weights[group], strict=True)))
        return after if all(n <= most for n, most in zip(after, self.most, strict=True)) else None


def exact_tally(nodes: Sequence[int]) -> Tally:
    """Nodes of every group, counted."""
    unit = [tuple(int(i == j) for i in range(len(nodes))) for j in range(len(nodes))]
    return Tally(tuple(unit), tuple(nodes))


@dataclass(frozen=True)
class Step:
    """The ways to place one stage; A of them, R lanes, times in ns.

    source, target: [A] states before and after. group: [A, R] node group. send: [A, R, K] message
    between the stage before and this one, either way, of every number of tensors. back: the same
    between the last stage and the first one, as far as the nodes of the first decide it; 0 on
    others. tail: [A] row of `OrderGraph.tails`. begins: per step the groups of the nodes whose
    first slots are of this stage.
    """

    source: Array
    target: Array
    group: Array
    send: Array
    back: Array
    tail: Array
    begins: tuple[tuple[int, ...], ...]
    num_targets: int


class OrderGraph:
    """The graph of one shape. `steps` is None if there are too many."""

    def __init__(
        self, instance: Instance, shape: Shape, tally: Tally | None = None, apart: bool = False
    ) -> None:
        self.instance, self.shape, self.apart = instance, shape, apart
        self.tally = tally or exact_tally(shape.nodes_used)
        groups = instance.cluster.groups
        self.sizes = [group.gpus_per_node // shape.tp for group in groups]
        used = [c for c, n in zip(self.sizes, shape.nodes_used, strict=True) if n]
        self.width = gcd(shape.dp, *used)
        self.lanes = range(0, shape.dp, self.width)
        self.message = message_bytes(instance, shape)
        counts = [layer.output_tensors for layer in instance.workload.layers]
        self.tensors = sorted(set(counts))
        #: [n] of which number of tensors the message before a layer is
        self.kind = np.array([0, *map(self.tensors.index, counts)])
        self.tied = tied_bytes(instance, shape)
        self.parameters = layer_memory(instance, shape).parameters
        self.tails: list[Array] = []
        self.syncs: list[Array] = []
        self.embeddings: list[int] = []
        self._rows: dict[tuple[object, ...], int] = {}
        self._departures = lru_cache(maxsize=None)(self._flows_out)
        self._arrivals = lru_cache(maxsize=None)(self._flows_in)
        self._transfer_ns = lru_cache(maxsize=None)(self._send_ns)
        self._crossing = lru_cache(maxsize=None)(self._rings)

    @property
    def most_steps(self) -> int:
        """Steps times lanes of one stage with which the graph is still built."""
        return MOST_STEPS

    @cached_property
    def steps(self) -> tuple[Step, ...] | None:
        """Per stage, from the state before all nodes on."""
        states: list[State] = [((0,) * len(self.tally.most), ())]
        found = []
        for k in range(self.shape.pp):
            step = self._step(k, states)
            if step is None:
                return None
            found.append(step[0])
            states = step[1]
        return tuple(found)

    @property
    def built(self) -> tuple[Step, ...]:
        """The steps, which exist."""
        assert self.steps is not None
        return self.steps

    @cached_property
    def alike(self) -> list[int]:
        """Of every lane: the first lane that has the same groups and transfers."""
        first: dict[bytes, int] = {}
        found = []
        for r in range(len(self.lanes)):
            columns = [part[:, r] for s in self.built for part in (s.group, s.send)]
            columns += [s.back[:, r] for s in self.built if self.shape.vpp > 1]
            found.append(first.setdefault(b"".join(own.tobytes() for own in columns), r))
        return found

    def _step(self, k: int, states: list[State]) -> tuple[Step, list[State]] | None:
        targets: dict[State, int] = {}
        rows = []
        for index, (used, before) in enumerate(states):
            for after, spots in self._placed(k, used, before):
                target = targets.setdefault((after, spots), len(targets))
                rows.append((index, target, before, spots))
                if len(rows) * len(self.lanes) > self.most_steps:
                    return None
        none = [0] * len(self.tensors)
        owners = [[self._owner(spots, k, r) for r in self.lanes] for _, _, _, spots in rows]
        sends = [
            self._sends_ns(k, [self._owner(before, k - 1, r) for r in self.lanes], own)
            if k
            else [none] * len(own)
            for (_, _, before, _), own in zip(rows, owners, strict=True)
        ]
        backs = [
            [none if k else self._back_ns(one, r) for r, one in zip(self.lanes, own, strict=True)]
            for own in owners
        ]
        step = Step(
            source=np.array([row[0] for row in rows]),
            target=np.array([row[1] for row in rows]),
            group=np.array([[spot.group for spot in own] for own in owners]),
            send=np.array(sends, dtype=np.int64),
            back=np.array(backs, dtype=np.int64),
            tail=np.array([self._tail_row(k, spots) for _, _, _, spots in rows]),
            begins=tuple(
                tuple(spot.group for spot in spots if spot.slots.start in self._stage(k))
                for _, _, _, spots in rows
            ),
            num_targets=len(targets),
        )
        return step, list(targets)

    def _placed(
        self, k: int, used: Used, before: tuple[Spot, ...]
    ) -> Iterator[tuple[Used, tuple[Spot, ...]]]:
        """Nodes used up and nodes of stage k, in every way to cover its slots.

        All orders of a single stage cost the same: one is enough.
        """
        first, stop = k * self.shape.dp, (k + 1) * self.shape.dp
        reaching = tuple(spot for spot in before if spot.slots.stop > first)
        end = reaching[-1].slots.stop if reaching else first
        if end >= stop:
            yield used, reaching
            return
        after = self._nodes(used)
        for j, more in islice(after, 1) if self.shape.pp == 1 else after:
            if not (self.apart and zone_link(self.instance, [j, *(s.group for s in reaching)])):
                spot = Spot(j, range(end, end + self.sizes[j]))
                yield from self._placed(k, more, (*reaching, spot))

    def _nodes(self, used: Used) -> Iterator[tuple[int, Used]]:
        """Groups of which a node may come next, and the tally with it."""
        for j, limit in enumerate(self.shape.nodes_used):
            more = self.tally.plus(used, j) if limit else None
            if more is not None:
                yield j, more

    def _owner(self, spots: tuple[Spot, ...], k: int, r: int) -> Spot:
        return next(spot for spot in spots if k * self.shape.dp + r in spot.slots)

    def _stage(self, k: int) -> range:
        return range(k * self.shape.dp, (k + 1) * self.shape.dp)

    def _flows_out(self, spot: Spot, k: int) -> int:
        """Replicas whose transfer from stage k to the next leaves the node."""
        dp = self.shape.dp
        return sum(s in spot.slots and s + dp not in spot.slots for s in self._stage(k))

    def _flows_in(self, spot: Spot, k: int) -> int:
        """Replicas whose transfer from stage k to the next, or the first, enters the node."""
        pairs = ((s, (s + self.shape.dp) % self.shape.slots) for s in self._stage(k))
        return sum(s not in spot.slots and t in spot.slots for s, t in pairs)

    def _links(self, spot: Spot) -> tuple[Link, Link]:
        group = self.instance.cluster.groups[spot.group]
        return group.intra_node, group.inter_node

    def _sends_ns(self, k: int, before: Sequence[Spot], after: Sequence[Spot]) -> list[list[int]]:
        """[R, K] messages between stages k - 1 and k of lanes on these nodes."""
        groups = ([spot.group for spot in spots] for spots in (before, after))
        crossing = passing(self.instance, *groups)
        width = self.shape.dp if self.apart else self.width
        each = zip(before, after, crossing, strict=True)
        return [self._transfer_ns(k, a, b, min(n * width, self.shape.dp)) for a, b, n in each]

    def _send_ns(self, k: int, source: Spot, target: Spot, crossing: int) -> list[int]:
        """[K] messages between stages k - 1 and k on these nodes, so many between their zones."""
        sizes = [n * self.message for n in self.tensors]
        if source == target:
            return [ceil_ns(self._inside_s(source, size)) for size in sizes]
        ends = [
            (source, self._links(source)[1], self._departures(source, k - 1)),
            (target, self._links(target)[1], self._arrivals(target, k - 1)),
        ]
        if between := zone_link(self.instance, (source.group, target.group)):
            ends += [(source, between, crossing), (target, between, crossing)]
        return [max(ceil_ns(self._outside_s(*end, size)) for end in ends) for size in sizes]

    def _back_ns(self, spot: Spot, r: int) -> list[int]:
        """[K] messages to replica r of the first stage on this node from that of the last."""
        last = self.shape.pp - 1
        sizes = [n * self.message for n in self.tensors]
        if last * self.shape.dp + r in spot.slots:
            return [ceil_ns(self._inside_s(spot, size)) for size in sizes]
        (_, outside), flows = self._links(spot), self._arrivals(spot, last)
        return [ceil_ns(self._outside_s(spot, outside, flows, size)) for size in sizes]

    def _inside_s(self, spot: Spot, size_bytes: int) -> float:
        link, _ = self._links(spot)
        return size_bytes / link.bandwidth_bytes_per_s + link.latency_s

    def _outside_s(self, spot: Spot, link: Link, replicas: int, size_bytes: int) -> float:
        tp = self.shape.tp
        outside_s = replicas * tp * size_bytes / link.bandwidth_bytes_per_s + link.latency_s
        if self.instance.search.gathers_messages:
            outside_s += (tp - 1) * self._inside_s(spot, size_bytes)
        return outside_s

    def _tail_row(self, k: int, spots: tuple[Spot, ...]) -> int:
        """Row of [n, n] ns from the last backward of a stage on these nodes to its end.

        Gradient sync, tied embeddings as far as these nodes decide it, slowest optimizer, gather.
        `syncs` and `embeddings` have the first two of each row.
        """
        stage = self._stage(k)
        members = sorted(
            (spot.group, len(_common(spot.slots, stage)), self._crossing(spot)) for spot in spots
        )
        tied = self.tied and k in (0, self.shape.pp - 1)
        embedding = max(map(self._embedding_ns, spots)) if tied else 0
        key = (*members, embedding)
        if key not in self._rows:
            self._rows[key] = len(self.tails)
            sync = self._sync_ns(members)
            self.tails.append(sync + embedding + self._after_ns(members))
            self.syncs.append(sync)
            self.embeddings.append(embedding)
        return self._rows[key]

    def _sync_ns(self, members: Sequence[Member]) -> Array:
        """[n, n] gradient sync."""
        sizes = self.instance.workload.gradient_bytes * self.parameters
        return self._collective_ns(members, collective_factors(self.instance, self.shape)[0], sizes)

    def _after_ns(self, members: Sequence[Member]) -> Array:
        """[n, n] slowest optimizer, gather."""
        slowest: Array = np.max([self._optimizer_ns(j) for j, _, _ in members], axis=0)
        sizes = self.instance.workload.parameter_bytes * self.parameters
        return slowest + self._collective_ns(
            members, collective_factors(self.instance, self.shape)[1], sizes
        )

    def _optimizer_ns(self, j: int) -> Array:
        """[n, n] on GPUs of group j."""
        shards = num_holders(self.shape, 1)
        sizes = touched_bytes(self.instance.workload) * -(-self.parameters // shards)
        speed = self.instance.cluster.groups[j].gpu.memory_bandwidth_bytes_per_s
        return interval_sums(_ceil_all(sizes / speed))

    def _collective_ns(self, members: Sequence[Member], factor: float, sizes_bytes: Array) -> Array:
        """[n, n] ring collective over the replicas of a stage on all its nodes."""
        nodes = [(self.instance.cluster.groups[j], n, rings) for j, n, rings in members]
        count = len(nodes)
        links: list[tuple[Link, int]] = [(g.inter_node, rings) for g, _, rings in nodes]
        if between := zone_link(self.instance, (j for j, _, _ in members)):
            links.append((between, self.shape.tp))
        inside = max(
            ring_share(factor, n) / g.intra_node.bandwidth_bytes_per_s for g, n, _ in nodes
        )
        outside = max(
            rings * ring_share(factor, count) / link.bandwidth_bytes_per_s for link, rings in links
        ) / self.instance.cluster.efficiency(count)
        start_s = max(ring_latency_s(factor, n, g.intra_node.latency_s) for g, n, _ in nodes)
        between_s = max(ring_latency_s(factor, count, link.latency_s) for link, _ in links)
        layers: Array = _ceil_all(sizes_bytes * inside) + _ceil_all(sizes_bytes * outside)
        return interval_sums(layers) + ceil_ns(start_s) + ceil_ns(between_s)

    def _rings(self, spot: Spot) -> int:
        """Rings of GPUs that cross the node's border: tp for every stage that is not all on it."""
        parts = [len(_common(spot.slots, self._stage(k))) for k in range(self.shape.pp)]
        return self.shape.tp * sum(0 < part < self.shape.dp for part in parts)

    def _embedding_ns(self, spot: Spot) -> int:
        """All-reduce of tied embeddings over the links of this node."""
        pairs = list(zip(self._stage(0), self._stage(self.shape.pp - 1), strict=True))
        ends = [(a in spot.slots, b in spot.slots) for a, b in pairs]
        (inside, outside), crossing = self._links(spot), sum(a != b for a, b in ends)
        links = [(outside, crossing * self.shape.tp)] if crossing else []
        links += [(inside, 1)] if any(a and b for a, b in ends) else []
        return max(
            ceil_ns(
                flows * ring_share(ALL_REDUCE, 2) * self.tied / link.bandwidth_bytes_per_s
                + ring_latency_s(ALL_REDUCE, 2, link.latency_s)
            )
            for link, flows in links
        )


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
