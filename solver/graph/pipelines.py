"""Pipelines whose stages choose the GPUs they run on, as split problems of one lane.

States are those of `GpuGraph`: a stage takes the GPUs of all its replicas at once. A column is a
place, and what memory makes a stage recompute there at its position.

`FreeDegrees`: templates, data parallel of 1. One problem holds pipelines of every number of stages
from two on: shorter ones have empty stages at the front, see `problem`. There is no sync: what
replicas of unlike pipelines exchange, `formulations.costs.template_costs` adds.
`StageDegrees`: plans of one configuration in which every stage has degrees of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from formulations.costs.stage_costs import NEVER
from formulations.costs.stage_places import StagePlacer
from formulations.decisions import Decisions
from formulations.fleet import Template
from formulations.plan import ByPlace, Plan
from formulations.space.slots import may_follow
from solver.graph.gpu_graph import GpuGraph, State, Step
from solver.graph.places import Places, places_of, stage_rings
from solver.graph.problem import Arcs, Array, Intervals, Mask, Move, SplitProblem, by_message, walk

#: The least number of stages of a template: what is one stage alone costs otherwise.
LEAST_STAGES = 2


class PlaceColumns:
    """Times of stages by column: one per place, and more where a stage recomputes there.

    place: of every column. backward: [n, n] each.
    """

    def __init__(self, places: Places) -> None:
        self.places, self.backward = places, [*places.backward]
        self.place = [*range(len(places.gpus))]
        self._known = dict[tuple[int, int], tuple[int, Mask]]()

    def of(self, place: int, in_flight: int) -> tuple[int, Mask]:
        """Column of stages at a place that hold so many micro-batches, and [n, n] their layers."""
        if (place, in_flight) not in self._known:
            extra = self.places.memory.extra(place, in_flight)
            fits = extra < NEVER
            column = place
            if (extra[fits] > 0).any():
                column = len(self.place)
                self.place.append(place)
                self.backward.append(self.places.backward[place] + np.where(fits, extra, 0))
            self._known[place, in_flight] = column, fits
        return self._known[place, in_flight]


Arc = Move[Step | None]  #: a stage on a step between two states, or an empty one without


class _Choice(NamedTuple):
    """What a stage may run on an arc: its column, the kind of message that comes, [n, n] layers."""

    arc: Arc
    column: int
    message: int
    allowed: Mask


@dataclass
class Pipelines:
    """The split problem of pipelines that are paths of a graph, with so many micro-batches."""

    graph: GpuGraph
    micro_batches: int

    @cached_property
    def arcs(self) -> list[list[Arc]]:
        """Per stage; none if there is no pipeline."""
        raise NotImplementedError

    def _by_message(self, stage: int, allowed: Mask) -> dict[int, Mask]:
        """Layers of a stage by the kind of message that comes to it."""
        return {0: allowed}

    def _sync(self) -> Array:
        """[C, n, n] gradient sync of stages by place."""
        return np.zeros_like(self.graph.places.finish)

    @cached_property
    def _columns(self) -> PlaceColumns:
        return PlaceColumns(self.graph.places)

    @cached_property
    def _choices(self) -> list[list[_Choice]]:
        """Per stage, arc by arc; empty ones take the first column, no time and no layers."""
        places, columns, choices = self.graph.places, self._columns, list[list[_Choice]]()
        nothing = np.zeros(places.forward.shape[1:], dtype=np.bool_)
        nothing[0, 0] = True
        for k, arcs in enumerate(self.arcs):
            in_flight = places.held(len(self.arcs), k, self.micro_batches)
            runs: dict[int | None, tuple[int, dict[int, Mask]]] = {None: (0, {0: nothing})}
            for place in dict.fromkeys(arc.what.place for arc in arcs if arc.what):
                column, allowed = columns.of(place, in_flight)
                runs[place] = column, self._by_message(k, allowed)
            of_stage = list[_Choice]()
            for arc in arcs:
                column, masks = runs[arc.what and arc.what.place]
                of_stage += [_Choice(arc, column, *message) for message in masks.items()]
            choices.append(of_stage)
        return choices

    @cached_property
    def problem(self) -> SplitProblem:
        """The problem; no stages if there is no pipeline."""
        places = self.graph.places
        stages = tuple(self._stage(k, choices) for k, choices in enumerate(self._choices))
        return SplitProblem(
            schedule=places.schedule,
            blocking=places.blocking,
            tied=places.tied,
            stages=stages,
            micro_batches=(self.micro_batches,),
            forward=places.forward[self._columns.place],
            backward=np.stack(self._columns.backward),
            sync=self._sync(),
            finish=places.finish,
        )

    def _stage(self, k: int, choices: list[_Choice]) -> Arcs:
        places = self.graph.places
        steps = [choice.arc.what for choice in choices]
        place = [0 if step is None else step.place for step in steps]
        last = k + 1 == len(self.arcs)
        ends = [step is not None and (last or step.before.place is None) for step in steps]
        sends = np.array([self._sends(c.arc.what, c.message) for c in choices], dtype=np.int64)
        between = int(sum(self.graph.finals[0]) > 1)
        return Arcs(
            source=np.array([choice.arc.source for choice in choices]),
            target=np.array([choice.arc.target for choice in choices]),
            column=np.array([[choice.column] for choice in choices]),
            send=sends[:, :1],
            send_back=sends[:, 1:],
            tail=np.array(place),
            embedding=places.embedding[between][place] * ends,
            allowed=tuple(choice.allowed for choice in choices),
            begins=((),) * len(choices),
        )

    def _sends(self, step: Step | None, message: int) -> tuple[int, int]:
        """Transfers from the stage before, and back to it."""
        if step is None or step.before.place is None:
            return 0, 0
        pair, places = (int(step.fresh), step.before.place, step.place), self.graph.places
        ahead, back = (np.ravel(times[pair])[message] for times in (places.send, places.send_back))
        return int(ahead), int(back)

    def steps(self, arcs: Sequence[int]) -> list[Step]:
        """Of the stages with layers along a path of arcs [p] of the problem."""
        path = [choices[arc].arc.what for choices, arc in zip(self._choices, arcs, strict=True)]
        return [step for step in path if step is not None]


class FreeDegrees(Pipelines):
    """Templates of a graph."""

    @cached_property
    def arcs(self) -> list[list[Arc]]:
        """Such that as many stages as follow can end the pipeline; none for one stage alone."""
        graph, longest = self.graph, max(self.graph.numbers, default=0)

        def moves(k: int, state: State) -> Iterator[tuple[State, Step | None]]:
            after, first = longest - 1 - k, state == graph.start
            if first and after >= LEAST_STAGES:
                yield state, None
            if not first or after >= LEAST_STAGES - 1:
                for step in graph.steps[state]:
                    if graph.may_be_followed(step.after, after):
                        yield step.after, step

        return walk(graph.start, longest if longest >= LEAST_STAGES else 0, moves) or []

    def template(self, arcs: Sequence[int], split: Sequence[int]) -> Template:
        """The pipeline along a path of arcs [p] with these boundaries [p + 1]."""
        steps = self.steps(arcs)
        return self.graph.template(steps, split[len(arcs) - len(steps) :], self.micro_batches)

    def least_ns(self) -> int:
        """No pipeline is faster: every GPU works all the time, and stays on its fastest layers.

        Proof. Let w_ij be the least GPU time of layer i on a node of group j, w_i the least of
        all, and s_j the largest w_i / w_ij. In a step of T the GPUs of group j, n_j of them, do
        work that takes w_i each of at most s_j n_j T, and all together that of every layer, as
        often as there are micro-batches.
        """
        places = self.graph.places
        layers = np.arange(places.num_layers)
        busy = (places.forward + places.backward)[:, layers, layers + 1]
        work: Array = busy * np.array(places.gpus)[:, None]
        groups = np.array(places.group)
        used = [j for j in np.unique(groups).tolist() if any(v[j] for v in self.graph.finals)]
        by_group = np.stack([work[groups == j].min(axis=0) for j in used])
        least_work = by_group.min(axis=0)
        gain = np.max(least_work / np.maximum(by_group, 1), axis=1)
        speed = max(
            sum(float(gain[i]) * final[j] * places.node_gpus[j] for i, j in enumerate(used))
            for final in self.graph.finals
        )
        return int(self.micro_batches * int(least_work.sum()) / speed * (1 - 1e-9))


class _Begun(NamedTuple):
    """Where the stages placed end, and a place that counts for the target as their first one's."""

    state: State
    first: int | None


class StageDegrees(Pipelines):
    """The plans of one configuration; intervals: by place."""

    def __init__(self, intervals: Intervals, by_place: ByPlace) -> None:
        self.tables, self.by_place, self.config = intervals.tables, by_place, by_place.config
        graph = GpuGraph(places_of(intervals, by_place), [self.config.nodes_used])
        super().__init__(graph, self.tables.num_micro_batches // self.config.dp)

    @cached_property
    def arcs(self) -> list[list[Arc]]:
        """Steps that the others can follow."""
        graph, pp, follows = self.graph, self.config.pp, self._follows
        # [C] the first place that the target lets begin pipelines as this one.
        like = [follows.index(row) for row in follows]

        def moves(k: int, begun: _Begun) -> Iterator[tuple[_Begun, Step | None]]:
            for step in graph.steps[begun.state]:
                first = like[step.place] if begun.first is None else begun.first
                runs = follows[first][step.place][k + 1 == pp]
                if runs and graph.may_be_followed(step.after, pp - 1 - k):
                    yield _Begun(step.after, first), step

        arcs = walk(_Begun(graph.start, None), pp, moves) or []
        return arcs if all(arcs) else []

    @cached_property
    def _follows(self) -> list[list[tuple[bool, ...]]]:
        """[C][C] whether the target runs a stage behind a first one: inside, and at the end."""
        follows = partial(may_follow, self.by_place.instance, self.config.zero)
        all_degrees = [degrees for _, degrees in self.by_place.places]
        return [
            [tuple(follows(first, later, end) for end in (False, True)) for later in all_degrees]
            for first in all_degrees
        ]

    def _by_message(self, stage: int, allowed: Mask) -> dict[int, Mask]:
        return by_message(self.tables, stage, allowed)

    def _sync(self) -> Array:
        placer = StagePlacer(self.tables)
        return np.stack([stage_rings(placer, x)[0] for x in range(len(self.by_place.places))])

    def plan(self, arcs: Sequence[int], split: Sequence[int]) -> Plan:
        """The plan along a path of arcs [p] of the problem, with these boundaries [p + 1]."""
        layout = [2 * step.place + (not step.fresh) for step in self.steps(arcs)]
        shares = (self.micro_batches,) * self.config.dp
        return Decisions(tuple(layout), tuple(split), shares).plan(self.tables)
