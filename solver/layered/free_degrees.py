"""Split problems in which every stage chooses the GPUs it runs on: one lane, data parallel of 1.

States are those of `GpuGraph`, in GPUs; a column is a place, and what memory makes a stage
recompute there at its position. One problem holds pipelines of every number of stages from two on:
shorter ones have empty stages at the front, see `problem`. General is all but two things. A replica
is a lane of its own: shapes with dp > 1 need states that tell how far each replica is. And there is
no sync: what replicas of unlike pipelines exchange, `formulations.costs.exchange` adds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from formulations.schedules import in_flight
from formulations.template import Template
from solver.layered.gpu_graph import GpuGraph, State, Step
from solver.layered.problem import Arcs, Array, Mask, SplitProblem

#: The least number of stages: what is one stage alone costs otherwise.
LEAST_STAGES = 2


@dataclass(frozen=True)
class _Arc:
    """A stage on a step, or an empty one without."""

    source: int
    target: int
    step: Step | None


@dataclass
class FreeDegrees:
    """The split problem of a graph, for pipelines with so many micro-batches."""

    graph: GpuGraph
    micro_batches: int
    arcs: list[list[_Arc]] = field(default_factory=list)
    known: dict[tuple[int, int], Mask] = field(default_factory=dict)

    def problem(self) -> SplitProblem:
        """The problem; no stages if there is no pipeline of two stages or more."""
        places, size = self.graph.places, self.graph.places.num_layers + 1
        self.arcs = [list(own) for own in self._levels()]
        stages = [self._stage(k, own) for k, own in enumerate(self.arcs)]
        none = np.zeros((1, size, size), dtype=np.int64)
        finish = np.concatenate([places.finish, none])
        return SplitProblem(
            schedule=places.schedule,
            blocking=places.blocking,
            tied=places.tied,
            stages=tuple(stages),
            micro_batches=(self.micro_batches,),
            forward=np.concatenate([places.forward, none]),
            backward=np.concatenate([places.backward, none]),
            sync=np.zeros_like(finish),
            finish=finish,
        )

    def template(self, arcs: Sequence[int], split: Sequence[int]) -> Template:
        """The pipeline along a path of arcs [p] with these boundaries [p + 1]."""
        path = [own[arc] for own, arc in zip(self.arcs, arcs, strict=True)]
        steps = [arc.step for arc in path if arc.step is not None]
        return self.graph.template(steps, split[len(path) - len(steps) :])

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

    def _stage(self, k: int, arcs: list[_Arc]) -> Arcs:
        places = self.graph.places
        empty = len(places.gpus)  # number of its column
        column = [empty if one.step is None else one.step.place for one in arcs]
        sends = [self._sends(one.step) for one in arcs]
        ends = [one.step is not None and self._is_end(k, one.step) for one in arcs]
        between = int(sum(self.graph.finals[0]) > 1)
        embedding = np.append(places.embedding[between], 0)[column] * ends
        return Arcs(
            source=np.array([one.source for one in arcs]),
            target=np.array([one.target for one in arcs]),
            column=np.array(column)[:, None],
            send=np.array([[send] for send, _ in sends], dtype=np.int64),
            send_back=np.array([[back] for _, back in sends], dtype=np.int64),
            tail=np.array(column),
            embedding=embedding,
            allowed=tuple(self._allowed(k, x) for x in column),
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

    def _allowed(self, k: int, column: int) -> Mask:
        """[n, n] layers of a stage at a place."""
        places, p = self.graph.places, len(self.arcs)
        held = in_flight(places.schedule, p, k, self.micro_batches)
        if (column, held) not in self.known:
            if column == len(places.gpus):
                allowed = np.zeros(places.room.shape[1:], dtype=np.bool_)
                allowed[0, 0] = True
            else:
                allowed = places.room[column] >= held
            self.known[column, held] = allowed
        return self.known[column, held]

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
