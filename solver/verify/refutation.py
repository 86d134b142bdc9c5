"""What plans of a shape below a claim may use, over all node orders, splits and shares.

Take a plan with a step of at most D. For device k of a lane (replicas on the same nodes) with m
micro-batches each, every member of `families` is a path of its graph, so it is no longer than D:

    way down and up of the devices before + F f + B b + W w + c (way through those after) + tail

F, B, W and c those of the member, f, b, w of one micro-batch on device k, summed over its chunks of
layers; a way takes passes of the stages on its devices, and their transfers. With blocking sends
the transfers that device k sends belong to its f and b. Memory holds what the schedule asks for.
The ways depend on the plan: a shortest path among what is left stands for them.

No member is shorter for a larger m: so what breaks a bound for some m is possible for none above
it, and every (device, layers, nodes, lane) has a largest m. What cannot serve all M micro-batches
is struck out: with lanes of q replicas, if the sum of the largest m is below M / q, or, with even
shares, one of them below M / dp. Nothing of a plan within D is ever struck out, so if nothing is
left there is no plan.

The outer devices reduce tied embeddings together, over the slower of their links: each waits for
the least of the other's. To know it, ways are told apart by that of the last one. Devices with
several chunks, which have even shares: see `chunk_stages`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.plan import Shape
from formulations.units import ceil_div
from solver.verify.bounds import Clock, Prover, TimeUpError
from solver.verify.families import members_of
from solver.verify.orders import OrderGraph
from solver.verify.path_lengths import Choices, Left, StageLengths
from solver.verify.stages import ChunkStages, Stages
from solver.verify.windows import by_windows

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


#: Per stage [J, n, n] layers that may run on nodes of a group.
Allowed = list[Mask]


def question_of(
    prover: Prover,
    shape: Shape,
    graph: OrderGraph | None = None,
    clock: Clock | None = None,
    below_ns: int | None = None,
) -> "Refutation":
    """The question for one shape, by the graph of all orders or another one.

    below_ns: with several chunks per device no claim is above this; without it there is none.
    """
    graph = graph or OrderGraph(prover.tables(shape))
    stages = Stages(prover, shape, graph)
    if shape.vpp > 1 and below_ns is not None:
        stages = ChunkStages(prover, shape, graph, below_ns - 1)
    return Refutation(stages, ceil_div(stages.total, graph.width), clock or Clock())


@dataclass(frozen=True)
class Refutation:
    """Whether lanes together do `needed` micro-batches per replica, or one if there is only one."""

    stages: Stages
    needed: int
    clock: Clock

    @property
    def applies(self) -> bool:
        """Whether there is an argument, and not too many orders."""
        stages = self.stages
        return stages.chunks == stages.shape.vpp and stages.graph.steps is not None

    def refutes(self, below_ns: int) -> bool:
        """True only if no plan of the shape has a step time below this."""
        return self.applies and self.remaining(self.everything(below_ns), below_ns) is None

    def remaining(self, left: Left, below_ns: int) -> Left | None:
        """What plans with a step time below this may use of `left`; None if there are none."""
        thinned = self._thinned(left, below_ns - 1)
        if thinned is None or len(cases := self._by_embedding(thinned)) == 1:
            return thinned
        return _joined(self._thinned(case, below_ns - 1) for case in cases)

    def by_windows(self, left: Left, below_ns: int) -> Left | None:
        """The same of even shares by classes and windows, see there; slower."""
        cases = (self._thinned(case, below_ns - 1) for case in self._by_embedding(left))
        return _joined(self._windowed(case, below_ns - 1) for case in cases)

    def _windowed(self, left: Left | None, limit: int) -> Left | None:
        for lane in self.stages.lanes if self.stages.even and self.stages.chunks == 1 else ():
            left = left and by_windows(self.stages, left, lane, limit, self.clock)
        return left

    def _thinned(self, left: Left, limit: int) -> Left | None:
        before = -1
        while before != (count := sum(map(len, left))):
            self.clock.check()
            if not all(map(len, left)):
                return None
            before = count
            left = self._kept(left, limit)
        return left

    def _by_embedding(self, left: Left) -> list[Left]:
        """By what the links of the last stage take for tied embeddings, if it has any."""
        epilogues = self.stages.graph.epilogues
        rows = self.stages.graph.built[-1].tail[left[-1].step]
        times = np.array(epilogues.embeddings)[rows]
        return [[*left[:-1], left[-1].take(times == ns)] for ns in np.unique(times)]

    def everything(self, below_ns: int, allowed: Allowed | None = None) -> Left:
        """All choices of every stage whose devices and memory alone leave the claim open."""
        return [
            self._choices(k, below_ns - 1, None if allowed is None else allowed[k])
            for k in range(self.stages.shape.pp)
        ]

    def _choices(self, k: int, limit: int, allowed: Mask | None) -> Choices:
        step, able = self.stages.graph.built[k], self.stages.able(k, limit)
        if not len(step.source):
            return Choices(*np.zeros((4, 0), dtype=np.int64))
        found: dict[bytes, tuple[Array, Array, Array]] = {}
        once = np.ones(step.group.shape[1], dtype=np.int64)
        parts, total = [], 0
        for x, groups in enumerate(step.group):
            key = groups.tobytes()
            if key not in found:
                mask = self.suffice(able[groups], once)
                if allowed is not None:
                    mask &= allowed[groups].all(axis=0).ravel()
                found[key] = self.stages.placed(k, np.flatnonzero(mask))
            parts.append((np.full(len(found[key][0]), x), *found[key]))
            total += len(parts[-1][0])
            if total > self.stages.most_choices:
                raise TimeUpError
        return Choices(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def allowed(self, left: Left) -> Allowed:
        """What is left, of a graph of one lane."""
        found: Allowed = []
        num_groups, size = len(self.stages.shape.degrees), self.stages.size
        for step, choices in zip(self.stages.graph.built, left, strict=True):
            mask = np.zeros((num_groups, size, size), dtype=np.bool_)
            mask[step.group[choices.step, 0], choices.first, choices.last] = True
            found.append(mask)
        return found

    def suffice(self, most: Array, counts: Array) -> Mask:
        """[..] whether replicas with these most micro-batches [R, ..] do all.

        counts: [R] lanes that each row of `most` stands for.
        """
        whole = np.tensordot(counts, np.minimum(most, self.needed), axes=1)
        enough: Mask = (most >= self.stages.least).all(axis=0) & (whole >= self.needed)
        return enough

    def _kept(self, left: Left, limit: int) -> Left:
        """What is not struck out for plans within `limit`."""
        lanes = zip(
            *(self.most(left, r, limit, asked=True) for r in self.stages.lanes), strict=True
        )
        counts = np.array(list(self.stages.lanes.values()))
        return [
            choices.take(self.suffice(np.stack(most), counts))
            for choices, most in zip(left, lanes, strict=True)
        ]

    def most(self, left: Left, r: int, limit: int, asked: bool = False) -> Iterator[Array]:
        """Per stage [M] most micro-batches of a replica of lane r within `limit`.

        asked: of uneven shares no more than needed are looked for. Nor are fewer if all lanes are
        alike and have to do as much: these count as none.
        """
        stages, graph = self.stages, self.stages.graph
        asked &= not stages.even
        most = self.needed if asked else stages.total
        least = ceil_div(most, len(graph.lanes)) if asked and len(stages.lanes) == 1 else 1
        lane = stages.lane(left, r)
        for k, choices in enumerate(left):
            stage = StageLengths(lane, k, limit)
            held = stages.held(k)[graph.built[k].group[choices.step, r], choices.own]
            if stages.even:
                fits = stage.within(stages.members[k])
                yield np.where(fits, np.minimum(held, stages.least), 0)
            else:
                yield self._largest(k, stage, np.minimum(held, most), least)

    def _largest(self, k: int, stage: StageLengths, most: Array, least: int) -> Array:
        """[M] largest m up to `most` that no member rules out, by halving; 0 below `least`."""
        shape = self.stages.shape
        low, high = np.zeros_like(most), np.clip(most, 0, stage.alone)
        middle = high
        while ((low < high) & (high >= least)).any():
            members = members_of(shape.schedule, shape.pp, k, np.maximum(middle, 1))
            within = stage.within(members)
            low, high = np.where(within, middle, low), np.where(within, high, middle - 1)
            middle = (low + high + 1) // 2
        return np.where(low >= least, low, 0)


def _joined(parts: Iterable[Left | None]) -> Left | None:
    """What is in any of these; None if there are none."""
    found = [Choices.joined(own) for own in zip(*filter(None, parts), strict=True)]
    return found or None
