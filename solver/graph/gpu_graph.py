"""Where stages of free size may stand: the graph of GPU positions that pipelines are paths of.

A state says how many nodes of every group are used, how far the last of them is filled, and at
which place the last stage stands, as far as transfers tell places apart. A step places a stage on
the next GPUs of the node that is being filled, or on the first of a new one; or on whole nodes, if
it has more GPUs than one has.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from formulations.fleet import Template, stage_on
from formulations.node_sharing import may_start
from formulations.plan import Stage
from solver.graph.places import Places

Counts = tuple[int, ...]  #: nodes per node group


class State(NamedTuple):
    """used: nodes per group, the one being filled included. place: of the last stage, if any."""

    used: Counts
    filled: int
    place: int | None


class Step(NamedTuple):
    """A stage at `place`; `fresh`: on a new node."""

    before: State
    after: State
    place: int
    fresh: bool


class GpuGraph:
    """All templates whose nodes are counted by one of `finals`, which have equally many nodes."""

    def __init__(self, places: Places, finals: Sequence[Counts]) -> None:
        self.places, self.finals = places, list(finals)

    @cached_property
    def _alike(self) -> tuple[int, ...]:
        """[C] the first place of the same group whose messages to the next stage cost the same."""
        places = self.places
        keys = [
            (j, places.send[:, x].tobytes(), places.send_back[:, x].tobytes())
            for x, j in enumerate(places.group)
        ]
        return tuple(keys.index(key) for key in keys)

    @property
    def start(self) -> State:
        """No node is used."""
        return next(iter(self.steps))

    def _room(self, state: State) -> int:
        """GPUs left on the node that is being filled."""
        if state.place is None:
            return 0
        return self.places.node_gpus[self.places.group[state.place]] - state.filled

    def steps_from(self, state: State) -> list[Step]:
        """Ways to place the next stage; none beyond every final vector."""
        places, room = self.places, self._room(state)
        steps = []
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
                filled = min(offset + gpus, size)
                after = State(used, filled, self._alike[x])
                steps.append(Step(state, after, x, not room))
        return steps

    @cached_property
    def steps(self) -> dict[State, list[Step]]:
        """Steps from every state, states with fewer GPUs first; those that reach a final vector."""
        start = State((0,) * len(self.places.nodes), 0, None)
        steps = {start: self.steps_from(start)}
        fresh = [start]
        while fresh:
            states = dict.fromkeys(step.after for state in fresh for step in steps[state])
            fresh = [state for state in states if state not in steps]
            steps |= {state: self.steps_from(state) for state in fresh}

        def num_gpus(state: State) -> int:
            sizes = zip(state.used, self.places.node_gpus, strict=True)
            return sum(n * gpus for n, gpus in sizes) - self._room(state)

        return {state: steps[state] for state in sorted(steps, key=num_gpus)}

    @cached_property
    def _counts(self) -> dict[State, int]:
        """Bit r: r more stages can lead from the state to a final vector."""
        counts = dict[State, int]()
        for state in reversed(self.steps):
            counts[state] = int(self._room(state) == 0 and state.used in self.finals)
            for step in self.steps[state]:
                counts[state] |= counts[step.after] << 1
        return counts

    def may_be_followed(self, state: State, stages: int) -> bool:
        """Whether so many more stages can lead from a state to a final vector."""
        return bool(self._counts[state] >> stages & 1)

    @cached_property
    def numbers(self) -> list[int]:
        """Numbers of stages that templates may have."""
        counts = self._counts[self.start]
        return [p for p in range(1, self.places.num_layers + 1) if counts >> p & 1]

    def template(
        self, steps: Sequence[Step], boundaries: Sequence[int], micro_batches: int
    ) -> Template:
        """The template of steps from the start to an end, and of p + 1 layer boundaries."""
        stages, groups = list[Stage](), list[int]()
        for k, (step, layers) in enumerate(zip(steps, pairwise(boundaries), strict=True)):
            gpus = self.places.gpus[step.place]
            in_flight = self.places.held(len(steps), k, micro_batches)
            if step.fresh:
                groups.append(self.places.group[step.place])
            recomputed = self.places.memory.recomputed(step.place, in_flight, layers)
            first = step.after.filled - gpus
            stages.append(stage_on(layers, len(groups) - 1, first, gpus, recomputed))
        return Template(node_groups=tuple(groups), stages=tuple(stages))
