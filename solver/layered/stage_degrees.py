"""Split problems of shapes in which every stage has its own degrees, over all node orders.

States are those of `GpuGraph`: a stage takes the GPUs of all its replicas at once, so these are one
lane. Columns are places, see `formulations.costs.stage_places`, and what memory makes a stage
recompute there at its position.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from formulations.costs.intervals import interval_sums
from formulations.costs.stage_places import StagePlacer
from formulations.node_sharing import NodeSplit
from formulations.plan import Degrees, Plan, Recomputed
from formulations.slot_degrees import ByPlace, may_follow
from formulations.stage_layouts import layout_plan
from solver.layered.free_degrees import Columns
from solver.layered.gpu_graph import GpuGraph, State, Step
from solver.layered.places import PlaceMemory, Places
from solver.layered.problem import Arcs, Array, Intervals, Mask, SplitProblem, by_message


class _Begun(NamedTuple):
    """Where the stages placed end, and a place that counts for the target as their first one's."""

    state: State
    first: int | None


Arc = tuple[int, int, Step]  #: states before and after, stage
#: An arc, its column, the kind of message that comes to it, [n, n] layers.
_Choice = tuple[Arc, int, int, Mask]


def places_of(intervals: Intervals, whole: ByPlace) -> Places:
    """Tables by place as those that graphs of GPUs read; sends have the kinds of messages too."""
    tables, groups = intervals.tables, whole.instance.cluster.groups
    placer, shape, each = StagePlacer(tables), tables.shape, range(len(whole.places))
    send = [
        [[placer.send_ns(x, y, together) for y in each] for x in each] for together in (True, False)
    ]
    embedding = [[placer.embedding_ns(x, one) for x in each] for one in (True, False)]
    return Places(
        split=NodeSplit.ANY,
        nodes=tuple(group.nodes for group in groups),
        node_gpus=tuple(group.gpus_per_node for group in groups),
        group=tuple(j for j, _ in whole.places),
        gpus=tuple(shape.dp * degrees.width for _, degrees in whole.places),
        forward=intervals.forward,
        backward=intervals.backward,
        finish=np.stack([intervals.optimizer[x] + _rings(placer, x)[1] for x in each]),
        memory=PlaceMemory([(intervals, x) for x in each]),
        send=np.array(send, dtype=np.int64),
        send_back=np.array(send, dtype=np.int64),
        embedding=np.array(embedding, dtype=np.int64),
        tied=tables.tied,
        blocking=tables.instance.search.blocking_sends,
        schedule=shape.schedule,
    )


def _rings(placer: StagePlacer, place: int) -> tuple[Array, Array]:
    """[n, n] gradient sync and parameter gather of layers at a place."""
    sync, latency, gather, gather_latency = placer.rings(place)
    return interval_sums(sync) + latency, interval_sums(gather) + gather_latency


class StageDegrees:
    """The plans of one shape; intervals: by place."""

    def __init__(self, intervals: Intervals, whole: ByPlace) -> None:
        self.intervals, self.tables = intervals, intervals.tables
        self.whole, self.shape, self.places = whole, whole.shape, whole.places
        self.graph = GpuGraph(places_of(intervals, whole), [self.shape.nodes_used])

    @property
    def share(self) -> int:
        """Micro-batches of every replica."""
        return self.tables.num_micro_batches // self.shape.dp

    @cached_property
    def arcs(self) -> list[list[Arc]]:
        """Per stage the steps that the others can follow; none if there is no plan."""
        levels, useful, found = list(self._levels()), set[_Begun](), list[list[Arc]]()
        for k, moves in reversed(list(enumerate(levels))):
            levels[k] = [one for one in moves if one[1] in useful or k + 1 == self.shape.pp]
            useful = {before for before, *_ in levels[k]}
        numbers = dict.fromkeys(useful, 0)
        for moves in levels:
            after = {one: i for i, one in enumerate(dict.fromkeys(one for _, one, _ in moves))}
            found.append([(numbers[before], after[one], step) for before, one, step in moves])
            numbers = after
        return found if all(found) else []

    def _levels(self) -> Iterator[list[tuple[_Begun, _Begun, Step]]]:
        """Per stage the steps from where others lead to, some of them nowhere."""
        graph, states = self.graph, [_Begun(self.graph.start, None)]
        for after in reversed(range(self.shape.pp)):
            moves = [
                (before, _Begun(step.after, first), step)
                for before in states
                for step in graph.steps[before.state]
                if graph.may_be_followed(step.after, after)
                for first in [self._like[step.place] if before.first is None else before.first]
                if self._follows[first][step.place][not after]
            ]
            yield moves
            states = list(dict.fromkeys(one for _, one, _ in moves))

    @cached_property
    def _follows(self) -> list[list[tuple[bool, bool]]]:
        """[C][C] whether the target runs a stage behind a first one: inside, and at the end."""
        instance, degrees = self.whole.instance, [own for _, own in self.places]

        def follows(first: Degrees, own: Degrees) -> tuple[bool, bool]:
            zero = self.shape.zero
            inside, last = (may_follow(instance, zero, first, own, x) for x in (False, True))
            return inside, last

        return [[follows(first, own) for own in degrees] for first in degrees]

    @cached_property
    def _like(self) -> list[int]:
        """[C] the first place that the target lets begin pipelines as this one."""
        return [self._follows.index(own) for own in self._follows]

    @cached_property
    def problem(self) -> SplitProblem:
        """The problem; no stages if there is no plan."""
        places, columns = self.graph.places, Columns(self.graph.places)
        stages = tuple(self._stage(k, own, columns) for k, own in enumerate(self.arcs))
        placer = StagePlacer(self.tables)
        sync = [_rings(placer, x)[0] for x in range(len(self.places))]
        return SplitProblem(
            schedule=places.schedule,
            blocking=places.blocking,
            tied=places.tied,
            stages=stages,
            micro_batches=(self.share,),
            forward=columns.forward,
            backward=np.stack(columns.backward),
            sync=np.stack(sync),
            finish=places.finish,
        )

    def _choices(self, k: int, own: list[Arc], columns: Columns) -> list[_Choice]:
        """What the arcs of a stage may run, by the message that comes to it."""
        held = self.graph.places.held(self.shape.pp, k, self.share)
        kinds = {
            x: (column, by_message(self.tables, k, allowed))
            for x in {step.place for *_, step in own}
            for column, allowed in [columns.of(x, held)]
        }
        return [
            (arc, kinds[arc[2].place][0], kind, mask)
            for arc in own
            for kind, mask in kinds[arc[2].place][1].items()
        ]

    def _stage(self, k: int, own: list[Arc], columns: Columns) -> Arcs:
        places, choices = self.graph.places, self._choices(k, own, columns)
        send = np.array([[self._send(step, n)] for (*_, step), _, n, _ in choices], dtype=np.int64)
        place = np.array([step.place for (*_, step), *_ in choices])
        between = int(sum(self.shape.nodes_used) > 1)
        ends = k in (0, self.shape.pp - 1)
        return Arcs(
            source=np.array([source for (source, *_), *_ in choices]),
            target=np.array([target for (_, target, _), *_ in choices]),
            column=np.array([[column] for _, column, *_ in choices]),
            send=send,
            send_back=send,
            tail=place,
            embedding=places.embedding[between][place] * ends,
            allowed=tuple(mask for *_, mask in choices),
            begins=((),) * len(choices),
        )

    def _send(self, step: Step, kind: int) -> int:
        """Transfer from the stage before, and back to it."""
        before = step.before.place
        if before is None:
            return 0
        return int(self.graph.places.send[int(step.fresh), before, step.place, kind])

    def plan(self, arcs: Sequence[int], split: Sequence[int]) -> Plan:
        """The plan along a path of arcs [p] of the problem, with these boundaries [p + 1]."""
        columns = Columns(self.graph.places)
        steps = [
            self._choices(k, own, columns)[arc][0][2]
            for k, (own, arc) in enumerate(zip(self.arcs, arcs, strict=True))
        ]
        layout = [2 * step.place + (not step.fresh) for step in steps]
        places = self.graph.places

        def recomputed(k: int, place: int, layers: tuple[int, int]) -> Recomputed:
            held = places.held(self.shape.pp, k, self.share)
            return places.memory.recomputed(place, held, layers)

        shares = (self.share,) * self.shape.dp
        return layout_plan(self.whole, layout, split, shares, recomputed)
