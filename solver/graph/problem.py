"""One problem of the enumeration: the best split, and the best of some node orders, of a config.

The p stages are placed one after the other. States are what a placement of the first stages
leaves open; an arc places one stage more. A fixed order has one state and one arc per stage, a
free one a state for every set of nodes used and every way in which the last stage may end.
Lanes are replicas that behave alike under every order: equal node groups, transfers, shares.

One problem may hold pipelines of several lengths: where an arc allows layers [0, 0), a stage at the
front may be empty, which takes no time and sends nothing (`pipelines`). In 1F1B and GPipe the
others do not notice. Proof for 1F1B, GPipe's is plain: an empty stage k before a first stage s
delays F(x) until its own B(x - w_k - 1), which ends with B_s(x - w_k - 1); as w_k > w_s, stage s
runs that before F_s(x) anyhow. The last backward of an empty stage ends with that of stage s.
Layers [a, b) of a stage cost what the matrices below say at [a, b]; n = L + 1.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_maxima, interval_sums
from formulations.costs.stage_costs import NEVER, StageCosts
from formulations.costs.tables import CostTables
from formulations.instance.search import ScheduleName
from formulations.schedules.registry import SCHEDULES

Array = NDArray[np.int64]
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
State = TypeVar("State")
What = TypeVar("What")

#: Larger than any time in ns, small enough that sums of a few do not overflow.
INFINITY = np.int64(1) << 60


def distinct(values: Array) -> Array:
    """[N] distinct values, ascending. `np.unique` would do, but loads numpy's masked arrays."""
    ordered = np.sort(values, axis=None)
    kept = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=kept[1:])
    return ordered[kept]


def distinct_rows(rows: Array) -> Array:
    """[N, C] distinct rows of a matrix, in lexicographic order."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    kept = np.ones(len(ordered), dtype=bool)
    kept[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered[kept]


def runs(first: Array, count: Array) -> tuple[Array, Array]:
    """Of runs of numbers, `count` from `first` on each: the run of every number, and the number."""
    owner = np.repeat(np.arange(len(count)), count)
    return owner, np.arange(len(owner)) + np.repeat(first - (np.cumsum(count) - count), count)


class Move(NamedTuple, Generic[What]):
    """One stage of a walk: numbers of the states before and after, and what it does there."""

    source: int
    target: int
    what: What


def walk(
    start: State,
    num_stages: int,
    moves: Callable[[int, State], Iterable[tuple[State, What]]],
    max_moves: float = inf,
) -> list[list[Move[What]]] | None:
    """Per stage the moves that some way through all stages takes; None if above `max_moves`.

    moves: of a stage and a state before it, the states after it and what the stage does.
    """
    states, stages = {start: 0}, list[list[Move[What]]]()
    for k in range(num_stages):
        numbers: dict[State, int] = {}
        stage = list[Move[What]]()
        for state, number in states.items():
            for after, what in moves(k, state):
                target = numbers.setdefault(after, len(numbers))
                stage.append(Move(number, target, what))
                max_moves -= 1
                if max_moves < 0:
                    return None
        stages.append(stage)
        states = numbers
    # Moves that the later stages cannot follow go.
    useful = set(states.values())
    for stage in reversed(stages):
        stage[:] = [move for move in stage if move.target in useful]
        useful = {move.source for move in stage}
    return stages


def by_message(message_kind: Array, stage: int, allowed: Mask) -> dict[int, Mask]:
    """Layers that a stage may have, by the kind of message that comes to it; one at least.

    So the arcs of a stage are told apart by what crosses the boundary before their first layer.
    message_kind: [n] of every boundary.
    """
    if stage == 0 or not message_kind.any():
        return {0: allowed}
    kinds = range(int(message_kind.max()) + 1)
    masks = {n: allowed & (message_kind == n)[:, None] for n in kinds}
    return {n: mask for n, mask in masks.items() if mask.any()} or {0: allowed}


class Intervals:
    """Interval sums of one CostTables, shared by all its orders and micro-batch shares."""

    def __init__(self, tables: CostTables, stages: StageCosts | None = None) -> None:
        self.tables, self.stages = tables, stages or StageCosts(tables)
        tables_ns = tables.forward_ns, tables.backward_ns, tables.optimizer_ns
        #: [J, n, n]
        self.forward, self.backward, self.optimizer = (interval_sums(ns.T) for ns in tables_ns)
        blocks = tables.blocks_before[None, :] - tables.blocks_before[:, None]
        ends = np.arange(tables.num_layers + 1)
        self.allowed = (blocks >= tables.min_blocks) & (ends[None, :] > ends[:, None])

    @cached_property
    def weight(self) -> Array:
        """[J, n, n] ns of weight gradients, part of `backward`."""
        return interval_sums(self.tables.weight_ns.T)

    def fits(self, group: int, stage: int, micro_batches: int) -> Mask:
        """[n, n] layers that may run as a stage on a group: enough blocks, and room."""
        return self.allowed & (self.stages.extra(group, stage, micro_batches) < NEVER)

    @cached_property
    def room(self) -> Array:
        """[J, n, n] micro-batches in flight that have room beside all else, 0 if there is none.

        With as much recomputed as may be, and no room for it while it is: never below the truth.
        """
        rooms, capacities = list[Array](), self.tables.capacity_bytes.tolist()
        for memory, capacity in zip(self.tables.memory, capacities, strict=True):
            sums = [interval_sums(way.activation_bytes) for way in memory.kept]
            workspace = [interval_maxima(way.workspace_bytes) for way in memory.kept]
            free = capacity - memory.fixed_bytes - interval_sums(memory.static_bytes)
            free, activations = free - np.min(workspace, axis=0), np.min(sums, axis=0)
            most = np.where(activations > 0, free // np.maximum(activations, 1), INFINITY)
            rooms.append(np.where(free < 0, 0, most))
        return np.where(self.allowed, np.stack(rooms), 0)


@dataclass(frozen=True)
class Arcs:
    """The ways to place one stage: A arcs between states, R lanes, ns.

    source, target: [A] states before and after the stage. column: [A, R] column of times. send,
    send_back: [A, R] transfers from and to the stage before, 0 on the first stage. tail: [A] row
    of sync and finish. embedding: [A] all-reduce of tied embeddings, as far as this stage's nodes
    decide it; 0 on stages that are neither first nor last. allowed: per arc [n, n] memory and
    blocks. begins: per arc the groups of the nodes that begin in this stage, if the order is free.
    """

    source: Array
    target: Array
    column: Array
    send: Array
    send_back: Array
    tail: Array
    embedding: Array
    allowed: tuple[Mask, ...]
    begins: tuple[tuple[int, ...], ...]

    @property
    def alike(self) -> bool:
        """Whether all lanes have equal columns and transfers on every arc."""
        per_lane = (self.column, self.send, self.send_back)
        return all(bool((values == values[:, :1]).all()) for values in per_lane)

    @property
    def num_states(self) -> int:
        """Number of states after the stage."""
        return int(self.target.max()) + 1


@dataclass(frozen=True)
class SplitProblem:
    """Find the contiguous split, and path of arcs, of least simulated step time.

    stages: a set of arcs per virtual stage, p of them with one chunk per device. micro_batches: per
    lane. forward, backward: [C, n, n] per micro-batch, by column. sync, finish: [T, n, n] between
    the last operation of a device and its optimizer, and from then to its end. tied: the first
    device with layers and the last one also wait for each other between the two. weight: [C, n, n]
    weight gradients where the schedule splits them from `backward`. chunks, group: as `Chunking`.
    memory: of devices with several chunks.
    """

    schedule: ScheduleName
    blocking: bool
    tied: bool
    stages: tuple[Arcs, ...]
    micro_batches: tuple[int, ...]
    forward: Array
    backward: Array
    sync: Array
    finish: Array
    chunks: int = 1
    group: int | None = None
    weight: Array | None = None
    memory: "ChunkMemory | None" = None

    @property
    def num_stages(self) -> int:
        """Number of virtual stages."""
        return len(self.stages)

    @property
    def num_devices(self) -> int:
        """Number of devices p of a replica; virtual stage s lies on device s mod p."""
        return len(self.stages) // self.chunks

    @cached_property
    def work(self) -> Array:
        """[C, n, n] device time per micro-batch."""
        both = self.forward + self.backward
        return both if self.weight is None else both + self.weight

    @property
    def num_layers(self) -> int:
        """Number of layers L."""
        return int(self.forward.shape[-1]) - 1

    @property
    def num_lanes(self) -> int:
        """Number of lanes R."""
        return len(self.micro_batches)

    def states_before(self, stage: int) -> int:
        """Number of states before a stage."""
        return self.stages[stage - 1].num_states if stage else 1

    def left(self, stage: int) -> list[Array]:
        """Per latency path of a stage [3, R, 1] operations of each kind beside the latency."""
        m = np.array(self.micro_batches, dtype=np.int64)
        p, k, v = (np.full_like(m, n) for n in (self.num_devices, stage, self.chunks))
        group = None if self.group is None else np.full_like(m, self.group)
        paths = SCHEDULES[self.schedule].missed(p, k, m, v, group)
        return [m[:, None] - 1 - np.stack(path)[..., None] for path in paths]

    def fits(self, splits: Array) -> Mask:
        """[N] whether devices with several chunks have room for splits [N, S + 1]."""
        return np.ones(len(splits), dtype=bool) if self.memory is None else self.memory.fit(splits)

    def order(self, arcs: Sequence[int]) -> tuple[int, ...]:
        """Node groups in node order along a path of arcs [p], if the order is free."""
        groups: list[int] = []
        for stage, arc in zip(self.stages, arcs, strict=True):
            groups.extend(stage.begins[arc])
        return tuple(groups)


@dataclass(frozen=True)
class ChunkMemory:
    """What devices that hold several chunks of layers have room for, and so recompute.

    groups: [p, R] node groups of the devices of every lane. share: micro-batches of each.
    """

    intervals: Intervals
    groups: Array
    share: int

    def fits(self, device: int, first: Array, last: Array) -> Mask:
        """[N] whether a device has room for its first chunks of layers [first, last) [c, N]."""
        way_of, groups = self.intervals.stages.way_of_chunks, {*self.groups[device].tolist()}
        rooms = [way_of(device, j, self.share, first, last)[1] for j in groups]
        room: Mask = np.all(rooms, axis=0)
        return room

    def fit(self, splits: Array) -> Mask:
        """[N] whether splits [N, S + 1] fit on every device."""
        p = len(self.groups)
        first, last = splits[:, :-1].T, splits[:, 1:].T
        room: Mask = np.all([self.fits(d, first[d::p], last[d::p]) for d in range(p)], axis=0)
        return room

    def backward(self, splits: Array, lane: int) -> Array:
        """[S, N] ns of a backward pass, with what devices recompute."""
        groups, first, last = self.groups[:, lane], splits[:, :-1].T, splits[:, 1:].T
        plain = self.intervals.backward[np.resize(groups, len(first))[:, None], first, last]
        extra = self.intervals.stages.extra_of_devices(groups[:, None], self.share, splits)
        return plain + extra[:, 0]
