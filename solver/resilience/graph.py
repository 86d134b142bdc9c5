"""Split problems of templates: GPU positions as states, one problem per number of stages.

A state says how many nodes of every group are used, how far the last of them is filled, and at
which place the last stage stands, as far as transfers tell places apart. An arc places a stage on
the next GPUs of the node that is being filled, or on the first of a new one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from formulations.schedules import in_flight
from formulations.template import Template, TemplateStage
from formulations.units import ceil_div
from solver.enumeration.problem import INFINITY, Arcs, Array, Mask, SplitProblem
from solver.resilience.arrangement import may_start
from solver.resilience.chains import Counts
from solver.resilience.places import Places

#: Cost of what is not allowed: added to INFINITY it does not overflow.
_NO = INFINITY


@dataclass(frozen=True)
class State:
    """used: nodes per group, the one being filled included. place: of the last stage, if any."""

    used: Counts
    filled: int
    place: int | None


@dataclass(frozen=True)
class Step:
    """A stage at `place`; `fresh`: on a new node."""

    before: State
    after: State
    place: int
    fresh: bool


class TemplateGraph:
    """All templates whose nodes are counted by one of `finals`, which have equally many nodes."""

    def __init__(self, places: Places, finals: Sequence[Counts]) -> None:
        self.places, self.finals = places, list(finals)
        self.num_nodes = sum(self.finals[0])

    @cached_property
    def _alike(self) -> tuple[int, ...]:
        """[C] the first place of the same group whose messages to the next stage cost the same."""
        places = self.places
        keys = [
            (j, places.send[:, x].tobytes(), places.send_back[:, x].tobytes())
            for x, j in enumerate(places.group)
        ]
        return tuple(keys.index(key) for key in keys)

    def is_end(self, state: State) -> bool:
        """Whether all nodes of a final vector are full."""
        return self._room(state) == 0 and state.used in self.finals

    @property
    def start(self) -> State:
        """No node is used."""
        return next(iter(self.steps))

    def _gpus(self, state: State) -> int:
        """GPUs of the nodes that are full, and of the one that is being filled."""
        whole = sum(n * g for n, g in zip(state.used, self.places.node_gpus, strict=True))
        return whole - self._room(state)

    def _room(self, state: State) -> int:
        """GPUs left on the node that is being filled."""
        if state.place is None:
            return 0
        return self.places.node_gpus[self.places.group[state.place]] - state.filled

    def _steps_from(self, state: State) -> list[Step]:
        """Ways to place the next stage; none beyond every final vector."""
        places, room = self.places, self._room(state)
        found = []
        for x, (j, gpus) in enumerate(zip(places.group, places.gpus, strict=True)):
            if room and j != places.group[state.place or 0]:
                continue
            used = state.used
            if not room:
                used = (*used[:j], used[j] + 1, *used[j + 1 :])
            offset = state.filled if room else 0
            inside = offset + gpus <= places.node_gpus[j] and may_start(places.split, gpus, offset)
            if inside and any(all(map(int.__le__, used, final)) for final in self.finals):
                after = State(used, offset + gpus, self._alike[x])
                found.append(Step(state, after, x, not room))
        return found

    @cached_property
    def steps(self) -> dict[State, list[Step]]:
        """Steps from every state, states with fewer GPUs first; those that reach a final vector."""
        start = State((0,) * len(self.places.nodes), 0, None)
        found = {start: self._steps_from(start)}
        fresh = [start]
        while fresh:
            states = dict.fromkeys(step.after for state in fresh for step in found[state])
            fresh = [state for state in states if state not in found]
            found |= {state: self._steps_from(state) for state in fresh}
        order = sorted(found, key=self._gpus)
        return {state: found[state] for state in order}

    @cached_property
    def _counts(self) -> dict[State, int]:
        """Bit r: r more stages can lead from the state to a final vector."""
        counts = dict[State, int]()
        for state in reversed(self.steps):
            counts[state] = int(self.is_end(state))
            for step in self.steps[state]:
                counts[state] |= counts[step.after] << 1
        return counts

    @cached_property
    def numbers(self) -> list[int]:
        """Numbers of stages that templates may have."""
        whole = self._counts[self.start]
        return [p for p in range(1, self.places.num_layers + 1) if whole >> p & 1]

    def _paths(self, num_stages: int) -> list[list[Step]]:
        """Steps of every stage that lie on a way of so many stages to a final vector."""
        states = [self.start]
        stages: list[list[Step]] = []
        for left in reversed(range(num_stages)):
            steps = [
                step
                for state in states
                for step in self.steps[state]
                if self._counts[step.after] >> left & 1
            ]
            stages.append(steps)
            states = list(dict.fromkeys(step.after for step in steps))
        return stages

    def room_by_followers(self, micro_batches: int, most: int) -> list[Mask]:
        """Per place [most, n, n]: layers that fit if 0, 1, .. `most` - 1 stages follow."""
        held = [
            in_flight(self.places.schedule, most, most - 1 - r, micro_batches) for r in range(most)
        ]
        return [room >= np.array(held)[:, None, None] for room in self.places.room]

    def bounds(self, micro_batches: int, cutoff: int) -> dict[int, int]:
        """Per number of stages, a lower bound of every template whose step is below `cutoff`.

        Stage i of p waits for micro-batch 0 to come down to it, works for m t_i, and its last
        backward goes up again: T >= m t_i + sum over k < i of t_k and of the transfers between k
        and k + 1, both ways. Summed over all stages, with r_k = p - 1 - k stages after stage k,

            p T  >=  sum over k of (m + r_k) t_k + (r_k + 1) (transfers between k - 1 and k).

        The right side is additive, and from the last stage on its terms do not depend on p: one
        pass gives its least value for every p, over stages that have room and may be part of a
        template below the cutoff: by the first inequality, and by latency plus bottleneck (see
        `solver.enumeration.completion`), with the least work of the layers before and after them.
        INFINITY where there are no such stages.
        """
        if not self.numbers:
            return {}
        sums = _Sums(self, micro_batches, cutoff)
        for state in reversed(self.steps):
            sums.add(state, self.steps[state])
        least = sums.table[self.start][:, 0]
        return {
            p: ceil_div(int(least[p]), p) if least[p] < INFINITY else int(INFINITY)
            for p in self.numbers
        }

    def template(self, steps: Sequence[Step], boundaries: Sequence[int]) -> Template:
        """The template of steps from the start to an end, and of p + 1 layer boundaries."""
        stages, groups = list[TemplateStage](), list[int]()
        for step, layers in zip(steps, pairwise(boundaries), strict=True):
            gpus = self.places.gpus[step.place]
            if step.fresh:
                groups.append(self.places.group[step.place])
            stages.append(
                TemplateStage(
                    layers=layers,
                    node=len(groups) - 1,
                    first_gpu=step.after.filled - gpus,
                    gpus=gpus,
                )
            )
        return Template(node_groups=tuple(groups), stages=tuple(stages))

    def problem(self, num_stages: int, micro_batches: int) -> "TemplateProblem":
        """The templates of so many stages, one of `numbers`."""
        paths = self._paths(num_stages)
        masks = _Masks(self.places, num_stages, micro_batches)
        stages = tuple(self._arcs(k, steps, masks) for k, steps in enumerate(paths))
        nothing = np.zeros_like(self.places.finish)
        split = SplitProblem(
            schedule=self.places.schedule,
            blocking=self.places.blocking,
            tied=self.places.tied,
            stages=stages,
            micro_batches=(micro_batches,),
            forward=self.places.forward,
            backward=self.places.backward,
            sync=nothing,
            finish=self.places.finish,
        )
        return TemplateProblem(self, split, tuple(tuple(steps) for steps in paths))

    def _arcs(self, k: int, steps: Sequence[Step], masks: "_Masks") -> Arcs:
        places = self.places
        before = list(dict.fromkeys(step.before for step in steps))
        after = list(dict.fromkeys(step.after for step in steps))
        # The order of `after` must be that of the next stage's `before`: both are sorted.
        sources = {state: i for i, state in enumerate(sorted(before, key=_key))}
        targets = {state: i for i, state in enumerate(sorted(after, key=_key))}
        place = np.array([step.place for step in steps])
        last = np.array([x if (x := step.before.place) is not None else 0 for step in steps])
        fresh = np.array([step.fresh for step in steps]).astype(np.int64)
        none = np.zeros((len(steps), 1), dtype=np.int64)
        return Arcs(
            source=np.array([sources[step.before] for step in steps]),
            target=np.array([targets[step.after] for step in steps]),
            column=place[:, None],
            send=places.send[fresh, last, place][:, None] if k else none,
            send_back=places.send_back[fresh, last, place][:, None] if k else none,
            tail=place,
            embedding=places.embedding[int(self.num_nodes > 1), place],
            charge=none[:, 0],
            allowed=tuple(masks.of(k, step.place) for step in steps),
            begins=tuple((places.group[step.place],) if step.fresh else () for step in steps),
        )


def _key(state: State) -> tuple[Counts, int, int]:
    return state.used, state.filled, -1 if state.place is None else state.place


def _least_work(work: Array) -> tuple[Array, Array]:
    """[n] least sum of stage times of any stages on the layers before, and from, each boundary."""
    least = work.min(axis=0)
    size = len(least)
    before, after = np.full(size, INFINITY), np.full(size, INFINITY)
    before[0] = after[-1] = 0
    for end in range(1, size):
        before[end] = (before[:end] + least[:end, end]).min()
        start = size - 1 - end
        after[start] = (after[start + 1 :] + least[start, start + 1 :]).min()
    return before, after


def _by_length(cost: Array) -> list[tuple[int, Array]]:
    """Number of layers, and [r, first layer] of a cost [r, n, n], for numbers that may stand."""
    first, end = np.nonzero((cost < _NO).any(axis=0))
    found = []
    for length in np.unique(end - first).tolist():
        starts = np.arange(cost.shape[-1] - length)
        found.append((length, np.ascontiguousarray(cost[:, starts, starts + length])))
    return found


class _Sums:
    """Least right sides of `TemplateGraph.bounds`: per state, [r, layers] of what comes after."""

    def __init__(self, graph: TemplateGraph, micro_batches: int, cutoff: int) -> None:
        places, m = graph.places, micro_batches
        self.graph, self.places = graph, places
        self.most = max(graph.numbers)
        self.after = np.arange(self.most)[:, None]
        work = np.where(places.room > 0, places.forward + places.backward, _NO)
        before, onward = _least_work(work)
        least = np.minimum(places.forward, places.backward)
        after = self.after[..., None]
        warm = np.minimum(after, m - 1) if places.schedule == "1f1b" else 0 * after
        fits = graph.room_by_followers(m, self.most)
        self.cost = []
        for x, time in enumerate(work):
            busy = before[:, None] + np.minimum(m * time, _NO)
            whole = busy + onward - warm * least[x]
            allowed = (busy < cutoff) & (whole < cutoff) & fits[x]
            self.cost.append(_by_length(np.where(allowed, (m + after) * time, _NO)))
        self.table = dict[State, Array]()

    def add(self, state: State, steps: Sequence[Step]) -> None:
        """The sums of a state, after those of all states that follow it."""
        size = self.places.num_layers + 1
        table = np.full((self.most + 1, size), INFINITY)
        if self.graph.is_end(state):
            table[0, -1] = 0
        for step in steps:
            rest = self.table[step.after][:-1]
            send = 0
            if (last := state.place) is not None:
                pair = int(step.fresh), last, step.place
                send = int(self.places.send[pair] + self.places.send_back[pair])
            rows = np.flatnonzero((rest < INFINITY).any(axis=1))
            if not len(rows):
                continue
            own = slice(rows[0], rows[-1] + 1)
            into = table[rows[0] + 1 : rows[-1] + 2]
            sends = (self.after[own] + 1) * send
            for length, cost in self.cost[step.place]:
                size = cost.shape[-1]
                np.minimum(
                    into[:, :size], rest[own, length:] + cost[own] + sends, out=into[:, :size]
                )
        self.table[state] = table


class _Masks:
    """Layers that fit every place and stage, one array for equal ones."""

    def __init__(self, places: Places, num_stages: int, micro_batches: int) -> None:
        self.places, self.num_stages, self.micro_batches = places, num_stages, micro_batches
        self.known: dict[tuple[int, int], Mask] = {}

    def of(self, stage: int, place: int) -> Mask:
        """[n, n] layers that have room, and leave one for every other stage."""
        if (place, stage) not in self.known:
            held = in_flight(self.places.schedule, self.num_stages, stage, self.micro_batches)
            fits = self.places.room[place] >= held
            fits[:stage] = False
            fits[:, self.places.num_layers - (self.num_stages - 1 - stage) + 1 :] = False
            self.known[place, stage] = fits
        return self.known[place, stage]


@dataclass(frozen=True)
class TemplateProblem:
    """A split problem and what its arcs stand for."""

    graph: TemplateGraph
    split: SplitProblem
    steps: tuple[tuple[Step, ...], ...]

    def template(self, arcs: Array, boundaries: Array) -> Template:
        """The template of a path of arcs [p] and its layers [p + 1]."""
        steps = [self.steps[k][arc] for k, arc in enumerate(arcs.tolist())]
        return self.graph.template(steps, boundaries.tolist())
