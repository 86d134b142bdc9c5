"""Split problems in which every stage chooses the GPUs it runs on: one lane, data parallel of 1.

States are those of `GpuGraph`, in GPUs; a column is a place, and what memory makes a stage
recompute there at its position. One problem holds pipelines of every number of stages from two on:
shorter ones have empty stages at the front, see `problem`. General is all but two things. A replica
is a lane of its own: shapes with dp > 1 need states that tell how far each replica is. And there is
no sync: what replicas of unlike pipelines exchange, `formulations.costs.template_costs` adds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from formulations.costs.stage_costs import NEVER
from formulations.template import Template
from solver.layered.gpu_graph import GpuGraph, State, Step
from solver.layered.places import Places
from solver.layered.problem import Arcs, Array, Mask, SplitProblem

#: The least number of stages: what is one stage alone costs otherwise.
LEAST_STAGES = 2


@dataclass(frozen=True)
class _Arc:
    """A stage on a step, or an empty one without."""

    source: int
    target: int
    step: Step | None


class Columns:
    """Times of stages by column: one per place and one for empty stages, more where it recomputes.

    place: of every column. backward: [n, n] each.
    """

    def __init__(self, places: Places) -> None:
        self.places, self.empty = places, len(places.gpus)
        size = places.num_layers + 1
        self.backward = [*places.backward, np.zeros((size, size), dtype=np.int64)]
        self.place = [*range(self.empty + 1)]
        nothing = np.zeros((size, size), dtype=np.bool_)
        nothing[0, 0] = True
        self.nothing = self.empty, nothing
        self._known = dict[tuple[int, int], tuple[int, Mask]]()

    @property
    def forward(self) -> Array:
        """[n, n] each, of the columns up to now."""
        none = np.zeros((1, *self.places.forward.shape[1:]), dtype=np.int64)
        return np.concatenate([self.places.forward, none])[self.place]

    def of(self, place: int, held: int) -> tuple[int, Mask]:
        """Column of stages at a place that hold so many micro-batches, and [n, n] their layers."""
        if (place, held) not in self._known:
            extra = self.places.memory.extra(place, held)
            fits = extra < NEVER
            column = place
            if (extra[fits] > 0).any():
                column = len(self.place)
                self.place.append(place)
                self.backward.append(self.places.backward[place] + np.where(fits, extra, 0))
            self._known[place, held] = column, fits
        return self._known[place, held]


@dataclass
class FreeDegrees:
    """The split problem of a graph, for pipelines with so many micro-batches."""

    graph: GpuGraph
    micro_batches: int

    @cached_property
    def arcs(self) -> list[list[_Arc]]:
        """Per stage; none if there is no pipeline of two stages or more."""
        return [list(own) for own in self._levels()]

    @cached_property
    def problem(self) -> SplitProblem:
        """The problem; no stages if there are no arcs."""
        places, columns = self.graph.places, Columns(self.graph.places)
        stages = [self._stage(k, own, columns) for k, own in enumerate(self.arcs)]
        none = np.zeros((1, *places.forward.shape[1:]), dtype=np.int64)
        finish = np.concatenate([places.finish, none])
        return SplitProblem(
            schedule=places.schedule,
            blocking=places.blocking,
            tied=places.tied,
            stages=tuple(stages),
            micro_batches=(self.micro_batches,),
            forward=columns.forward,
            backward=np.stack(columns.backward),
            sync=np.zeros_like(finish),
            finish=finish,
        )

    def template(self, arcs: Sequence[int], split: Sequence[int]) -> Template:
        """The pipeline along a path of arcs [p] with these boundaries [p + 1]."""
        path = [own[arc] for own, arc in zip(self.arcs, arcs, strict=True)]
        steps = [arc.step for arc in path if arc.step is not None]
        return self.graph.template(steps, split[len(path) - len(steps) :], self.micro_batches)

    def _levels(self) -> Iterator[list[_Arc]]:
        """Arcs of every stage, such that as many stages as follow can end the pipeline."""
        graph, most = self.graph, max(self.graph.numbers, default=0)
        states = [graph.start]
        for after in reversed(range(most if most >= LEAST_STAGES else 0)):
            found = dict[State, int]()
            arcs = list[_Arc]()
            for i, state in enumerate(states):
                first = state == graph.start
                if first and after >= LEAST_STAGES:
                    arcs.append(_Arc(i, found.setdefault(state, len(found)), None))
                if first and after < LEAST_STAGES - 1:
                    continue
                for step in graph.steps[state]:
                    if graph.may_be_followed(step.after, after):
                        target = found.setdefault(step.after, len(found))
                        arcs.append(_Arc(i, target, step))
            yield arcs
            states = list(found)

    def _stage(self, k: int, arcs: list[_Arc], columns: Columns) -> Arcs:
        places = self.graph.places
        held = places.held(len(self.arcs), k, self.micro_batches)
        place = [columns.empty if one.step is None else one.step.place for one in arcs]
        each = [columns.nothing if x == columns.empty else columns.of(x, held) for x in place]
        sends = [self._sends(one.step) for one in arcs]
        ends = [one.step is not None and self._is_end(k, one.step) for one in arcs]
        between = int(sum(self.graph.finals[0]) > 1)
        return Arcs(
            source=np.array([one.source for one in arcs]),
            target=np.array([one.target for one in arcs]),
            column=np.array([[column] for column, _ in each]),
            send=np.array([[send] for send, _ in sends], dtype=np.int64),
            send_back=np.array([[back] for _, back in sends], dtype=np.int64),
            tail=np.array(place),
            embedding=np.append(places.embedding[between], 0)[place] * ends,
            allowed=tuple(allowed for _, allowed in each),
            begins=((),) * len(arcs),
        )

    def _is_end(self, k: int, step: Step) -> bool:
        """Whether a stage is the first one, or the last."""
        return step.before.place is None or k + 1 == len(self.arcs)

    def _sends(self, step: Step | None) -> tuple[int, int]:
        """Transfers from the stage before, and back to it."""
        if step is None or step.before.place is None:
            return 0, 0
        pair = int(step.fresh), step.before.place, step.place
        return int(self.graph.places.send[pair]), int(self.graph.places.send_back[pair])

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
        least = by_group.min(axis=0)
        gain = np.max(least / np.maximum(by_group, 1), axis=1)
        speed = max(
            sum(float(gain[i]) * final[j] * places.node_gpus[j] for i, j in enumerate(used))
            for final in self.graph.finals
        )
        return int(self.micro_batches * int(least.sum()) / speed * (1 - 1e-9))
