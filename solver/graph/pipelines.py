"""Pipelines whose stages choose the GPUs they run on, as split problems of one lane.

A state says how many nodes of every group are used, how far the last of them is filled, and at
which place the last stage stands, as far as transfers tell places apart. A step places a stage on
the next GPUs of the node that is being filled, or on the first of a new one; or on whole nodes, if
it has more GPUs than one has. It takes the GPUs of all its replicas at once. A column is a place,
and what memory makes a stage recompute there at its position.

`FreeDegrees`: templates, data parallel of 1. One problem holds pipelines of every number of stages
from two on: shorter ones have empty stages at the front, see `problem`. There is no sync: what
replicas of unlike pipelines exchange, `formulations.costs.template_costs` adds.
`StageDegrees`: plans of one configuration in which every stage has degrees of its own.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from formulations.decisions import Decisions
from formulations.fleet import Template, stage_on
from formulations.node_sharing import may_start
from formulations.plan import ByPlace, Plan, Stage
from formulations.space.slots import may_follow
from solver.graph.placements import Columns
from solver.graph.places import Places, places_of
from solver.graph.problem import Arcs, Array, Intervals, Mask, Move, SplitProblem, by_message, walk

Counts = tuple[int, ...]  #: nodes per node group

#: The least number of stages of a template: what is one stage alone costs otherwise.
LEAST_STAGES = 2


class State(NamedTuple):
    """used: nodes per group, the one being filled included. place: of the last stage, if any."""

    used: Counts
    filled: int
    place: int | None


class Step(NamedTuple):
    """A stage at `place`, behind one at `before`; on a new node if `fresh`, else from a GPU on."""

    before: int | None
    place: int
    fresh: bool
    first_gpu: int


Arc = Move[Step | None]  #: a stage on a step between two states, or an empty one without


class _Choice(NamedTuple):
    """What a stage may run on an arc: the kind of message that comes, and [n, n] layers."""

    arc: Arc
    message: int
    allowed: Mask


class Pipelines:
    """The split problem of pipelines with so many micro-batches.

    finals: nodes that they fill, one of these counts, which have equally many nodes.
    """

    def __init__(self, places: Places, finals: Sequence[Counts], micro_batches: int) -> None:
        self.places, self.finals, self.micro_batches = places, list(finals), micro_batches
        self.start = State((0,) * len(places.nodes), 0, None)
        self._steps = dict[State, list[tuple[State, Step]]]()

    @cached_property
    def arcs(self) -> list[list[Arc]]:
        """Per stage; none if there is no pipeline."""
        raise NotImplementedError

    @cached_property
    def _alike(self) -> tuple[int, ...]:
        """[C] the first place of the same group whose messages to the next stage cost the same."""
        places = self.places
        keys = [
            (j, places.send[:, x].tobytes(), places.send_back[:, x].tobytes())
            for x, j in enumerate(places.group)
        ]
        return tuple(keys.index(key) for key in keys)

    def _room(self, state: State) -> int:
        """GPUs left on the node that is being filled."""
        if state.place is None:
            return 0
        return self.places.node_gpus[self.places.group[state.place]] - state.filled

    def is_final(self, state: State) -> bool:
        """Whether a pipeline may end so."""
        return self._room(state) == 0 and state.used in self.finals

    def steps_from(self, state: State) -> list[tuple[State, Step]]:
        """Ways to place the next stage, with the states after it; none beyond every final count."""
        if state in self._steps:
            return self._steps[state]
        places, room = self.places, self._room(state)
        steps = self._steps[state] = []
        for x, (j, gpus) in enumerate(zip(places.group, places.gpus, strict=True)):
            if room and j != places.group[state.place or 0]:
                continue
            used = state.used
            if not room:
                used = (*used[:j], used[j] + 1, *used[j + 1 :])
            offset, size = state.filled if room else 0, places.node_gpus[j]
            fits = offset + gpus <= size and may_start(places.split, gpus, offset)
            if not room and gpus % size == 0:
                fits, used = True, (*used[:j], used[j] + gpus // size - 1, *used[j + 1 :])
            if fits and any(all(map(int.__le__, used, final)) for final in self.finals):
                after = State(used, min(offset + gpus, size), self._alike[x])
                steps.append((after, Step(state.place, x, not room, offset)))
        return steps

    def _held(self, stage: int) -> int:
        """Micro-batches that a stage holds at once."""
        return self.places.held(len(self.arcs), stage, self.micro_batches)

    @cached_property
    def _choices(self) -> list[list[_Choice]]:
        """Per stage, arc by arc; empty ones have no layers."""
        places, choices = self.places, list[list[_Choice]]()
        nothing = np.zeros(places.forward.shape[1:], dtype=np.bool_)
        nothing[0, 0] = True
        for k, arcs in enumerate(self.arcs):
            masks: dict[int | None, dict[int, Mask]] = {None: {0: nothing}}
            for place in {arc.what.place for arc in arcs if arc.what}:
                fits = places.fits(place, self._held(k))
                masks[place] = by_message(places.message_kind, k, fits)
            of_stage = list[_Choice]()
            for arc in arcs:
                by_kind = masks[arc.what and arc.what.place]
                of_stage += [_Choice(arc, *message) for message in by_kind.items()]
            choices.append(of_stage)
        return choices

    @cached_property
    def problem(self) -> SplitProblem:
        """The problem; no stages if there is no pipeline."""
        places = self.places
        columns = Columns(places.forward, places.backward, None, places.memory.extra)
        stages = tuple(self._stage(k, columns.first(self._held(k))) for k in range(len(self.arcs)))
        forward, backward, _ = columns.times()
        return SplitProblem(
            schedule=places.schedule,
            blocking=places.blocking,
            tied=places.tied,
            stages=stages,
            micro_batches=(self.micro_batches,),
            forward=forward,
            backward=backward,
            sync=places.sync,
            finish=places.finish,
        )

    def _stage(self, k: int, first_column: int) -> Arcs:
        """Arcs of a stage; empty ones take the first place, no time and no transfers."""
        places, choices = self.places, self._choices[k]
        steps = [choice.arc.what for choice in choices]
        place = np.array([step.place if step else 0 for step in steps])
        last = k + 1 == len(self.arcs)
        ends = [step is not None and (last or step.before is None) for step in steps]
        sends = np.array([self._sends(c.arc.what, c.message) for c in choices], dtype=np.int64)
        between = int(sum(self.finals[0]) > 1)
        return Arcs(
            source=np.array([choice.arc.source for choice in choices]),
            target=np.array([choice.arc.target for choice in choices]),
            column=first_column + place[:, None],
            send=sends[:, :1],
            send_back=sends[:, 1:],
            tail=place,
            embedding=places.embedding[between][place] * ends,
            allowed=tuple(choice.allowed for choice in choices),
            begins=((),) * len(choices),
        )

    def _sends(self, step: Step | None, message: int) -> tuple[int, int]:
        """Transfers from the stage before, and back to it."""
        if step is None or step.before is None:
            return 0, 0
        pair, places = (int(step.fresh), step.before, step.place), self.places
        ahead, back = (np.ravel(times[pair])[message] for times in (places.send, places.send_back))
        return int(ahead), int(back)

    def steps(self, arcs: Sequence[int]) -> list[Step]:
        """Of the stages with layers along a path of arcs [p] of the problem."""
        path = [choices[arc].arc.what for choices, arc in zip(self._choices, arcs, strict=True)]
        return [step for step in path if step is not None]


class FreeDegrees(Pipelines):
    """Templates."""

    @cached_property
    def arcs(self) -> list[list[Arc]]:
        """As many stages as the longest pipeline; none for one stage alone."""
        places = self.places
        gpus = [sum(map(int.__mul__, final, places.node_gpus)) for final in self.finals]
        most = min(places.num_layers, max(gpus) // min(places.gpus, default=1))

        def moves(k: int, state: State) -> Iterator[tuple[State, Step | None]]:
            after, first = most - 1 - k, state == self.start
            if first and after >= LEAST_STAGES:
                yield state, None
            if not first or after >= LEAST_STAGES - 1:
                for step in self.steps_from(state):
                    if after or self.is_final(step[0]):
                        yield step

        arcs = walk(self.start, most, moves) or []
        # Stages that are empty in all pipelines go.
        return [stage for stage in arcs if any(arc.what for arc in stage)]

    def template(self, arcs: Sequence[int], split: Sequence[int]) -> Template:
        """The pipeline along a path of arcs [p] with these boundaries [p + 1]."""
        stages, groups, path = list[Stage](), list[int](), self.steps(arcs)
        empty = len(arcs) - len(path)
        for k, (step, layers) in enumerate(zip(path, pairwise(split[empty:]), strict=True)):
            if step.fresh:
                groups.append(self.places.group[step.place])
            held = self._held(empty + k)
            recomputed = self.places.memory.recomputed(step.place, held, layers)
            node, gpus = len(groups) - 1, self.places.gpus[step.place]
            stages.append(stage_on(layers, node, step.first_gpu, gpus, recomputed))
        return Template(node_groups=tuple(groups), stages=tuple(stages))

    def least_ns(self) -> int:
        """No pipeline is faster: every GPU works all the time, and stays on its fastest layers.

        Proof. Let w_ij be the least GPU time of layer i on a node of group j, w_i the least of
        all, and s_j the largest w_i / w_ij. In a step of T the GPUs of group j, n_j of them, do
        work that takes w_i each of at most s_j n_j T, and all together that of every layer, as
        often as there are micro-batches.
        """
        places = self.places
        layers = np.arange(places.num_layers)
        busy = (places.forward + places.backward)[:, layers, layers + 1]
        work: Array = busy * np.array(places.gpus)[:, None]
        groups = np.array(places.group)
        used = [j for j in np.unique(groups).tolist() if any(v[j] for v in self.finals)]
        by_group = np.stack([work[groups == j].min(axis=0) for j in used])
        least_work = by_group.min(axis=0)
        gain = np.max(least_work / np.maximum(by_group, 1), axis=1)
        speed = max(
            sum(float(gain[i]) * final[j] * places.node_gpus[j] for i, j in enumerate(used))
            for final in self.finals
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
        share = self.tables.num_micro_batches // self.config.dp
        super().__init__(places_of(intervals, by_place), [self.config.nodes_used], share)

    @cached_property
    def arcs(self) -> list[list[Arc]]:
        """Steps that the others can follow."""
        pp, follows = self.config.pp, self._follows
        # [C] the first place that the target lets begin pipelines as this one.
        like = [follows.index(row) for row in follows]

        def moves(k: int, begun: _Begun) -> Iterator[tuple[_Begun, Step | None]]:
            last = k + 1 == pp
            for after, step in self.steps_from(begun.state):
                first = like[step.place] if begun.first is None else begun.first
                if follows[first][step.place][last] and (not last or self.is_final(after)):
                    yield _Begun(after, first), step

        arcs = walk(_Begun(self.start, None), pp, moves) or []
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

    def plan(self, arcs: Sequence[int], split: Sequence[int]) -> Plan:
        """The plan along a path of arcs [p] of the problem, with these boundaries [p + 1]."""
        layout = [2 * step.place + (not step.fresh) for step in self.steps(arcs)]
        shares = (self.micro_batches,) * self.config.dp
        return Decisions(tuple(layout), tuple(split), shares).plan(self.tables)
