"""What plans of a configuration below a claim may use, over all node orders, splits and shares.

Take a plan with a step of at most D. For device k of a lane (replicas on the same nodes) with m
micro-batches each, every member of `families` is a path of its graph, so it is no longer than D:

    way down and up of the devices before + F f + B b + W w + c (way through those after) + tail

F, B, W and c those of the member, f, b, w of one micro-batch on device k, summed over its chunks of
layers; a way takes passes of the stages on its devices, and their transfers. With blocking sends
the transfers that device k sends belong to its f and b. Memory holds what the schedule asks for.
The ways depend on the plan: a shortest path among what is remaining stands for them.

No member is shorter for a larger m: so what breaks a bound for some m is possible for none above
it, and every (device, layers, nodes, lane) has a largest m. What cannot serve all M micro-batches
is struck out: with lanes of q replicas, if the sum of the largest m is below M / q, or, with even
shares, one of them below M / dp. Nothing of a plan within D is ever struck out, so if nothing is
left there is no plan.

The outer devices reduce tied embeddings together, over the slower of their links: each waits for
the least of the other's that is left. So plans are told apart by the link of the last device, and
what is left is what any of these cases leaves. Devices with several chunks have even shares, see
`stages`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from formulations.costs.intervals import Array, Mask
from formulations.plan import Configuration
from formulations.units import ceil_div
from solver.interrupt import Deadline, TimeUp
from solver.verify.bounds import Prover
from solver.verify.orders import OrderGraph
from solver.verify.path_lengths import Choices, LaneWays, Remaining, members_of
from solver.verify.stages import ChunkStages, Stages
from solver.verify.windows import by_windows

#: Per stage [J, n, n] layers that may run on nodes of a group.
Allowed = list[Mask]


def question_of(
    prover: Prover,
    config: Configuration,
    graph: OrderGraph,
    below_ns: int,
    clock: Deadline,
) -> "Refutation":
    """The question for one configuration by a graph of its orders; no claim is above `below_ns`."""
    if config.vpp > 1:
        stages: Stages = ChunkStages(prover, config, graph, below_ns - 1)
    else:
        stages = Stages(prover, config, graph)
    return Refutation(stages, ceil_div(stages.total, graph.width), clock)


@dataclass(frozen=True)
class Refutation:
    """Whether lanes together do `needed` micro-batches per replica, or one if there is only one."""

    stages: Stages
    needed: int
    clock: Deadline

    def remaining(self, choices: Remaining, below_ns: int) -> Remaining | None:
        """What plans with a step time below this may use of these; None if there are none."""
        narrowed = self._narrowed(choices, below_ns - 1)
        if narrowed is None or len(cases := self._by_embedding(narrowed)) == 1:
            return narrowed
        return _joined(self._narrowed(case, below_ns - 1) for case in cases)

    def by_windows(self, choices: Remaining, below_ns: int) -> Remaining | None:
        """The same of even shares by classes and windows of stages, see there; slower."""
        if not (self.stages.even and self.stages.chunks == 1):
            return choices
        cases, limit = list[Remaining | None](), below_ns - 1
        for case in self._by_embedding(choices):
            remaining = self._narrowed(case, limit)
            for lane in self.stages.lanes:
                self.clock.check()
                remaining = remaining and by_windows(self.stages, remaining, lane, limit)
            cases.append(remaining)
        return _joined(cases)

    def _by_embedding(self, choices: Remaining) -> list[Remaining]:
        """By what the links of the last stage take for tied embeddings, if it has any."""
        *stages, last = choices
        rows = self.stages.graph.built[-1].tail[last.step]
        times = np.array(self.stages.graph.epilogues.embeddings)[rows]
        return [[*stages, last.take(times == ns)] for ns in np.unique(times)]

    def _narrowed(self, choices: Remaining, limit: int) -> Remaining | None:
        """What no lane rules out, again and again until nothing more is."""
        before = -1
        while before != (count := sum(map(len, choices))):
            self.clock.check()
            if not all(map(len, choices)):
                return None
            before = count
            by_lane = [self.most(choices, r, limit, asked=True) for r in self.stages.lanes]
            choices = [
                stage.take(self.suffice(np.stack(most)))
                for stage, *most in zip(choices, *by_lane, strict=True)
            ]
        return choices

    def everything(self, below_ns: int, allowed: Allowed | None = None) -> Remaining:
        """All choices of every stage whose devices and memory alone leave the claim open."""
        return [
            self._choices(k, below_ns - 1, None if allowed is None else allowed[k])
            for k in range(self.stages.config.pp)
        ]

    def _choices(self, k: int, limit: int, allowed: Mask | None) -> Choices:
        step = self.stages.graph.built[k]
        if not len(step.source):
            return Choices(*np.zeros((4, 0), dtype=np.int64))
        able = self.stages.able(k, limit)
        placed: dict[bytes, tuple[Array, Array, Array]] = {}  # by the groups of a step
        once = np.ones(step.group.shape[1], dtype=np.int64)
        parts, total = [], 0
        for x, groups in enumerate(step.group):
            key = groups.tobytes()
            if key not in placed:
                mask = self.suffice(able[groups], once)
                if allowed is not None:
                    mask &= allowed[groups].all(axis=0).ravel()
                placed[key] = self.stages.placed(k, np.flatnonzero(mask))
            parts.append((np.full(len(placed[key][0]), x), *placed[key]))
            total += len(parts[-1][0])
            if total > self.stages.most_choices:
                raise TimeUp
        return Choices(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def allowed(self, remaining: Remaining) -> Allowed:
        """The layers that remain for every group, of a graph of one lane."""
        size = self.stages.size
        masks: Allowed = [
            np.zeros((len(self.stages.config.degrees), size, size), dtype=np.bool_)
            for _ in remaining
        ]
        for mask, step, choices in zip(masks, self.stages.graph.built, remaining, strict=True):
            mask[step.group[choices.step, 0], choices.first, choices.last] = True
        return masks

    def suffice(self, most: Array, lane_counts: Array | None = None) -> Mask:
        """[..] whether replicas with these most micro-batches [R, ..] do all.

        lane_counts: [R] lanes that each row of `most` stands for; those that differ if not given.
        """
        if lane_counts is None:
            lane_counts = np.array(list(self.stages.lanes.values()))
        total = np.tensordot(lane_counts, np.minimum(most, self.needed), axes=1)
        return np.asarray((most >= self.stages.least).all(axis=0) & (total >= self.needed))

    def most(
        self, remaining: Remaining, r: int, limit: int, asked: bool = False
    ) -> Iterator[Array]:
        """Per stage [M] most micro-batches of a replica of lane r within `limit`.

        asked: of uneven shares no more than needed are looked for. Nor are fewer if all lanes are
        alike and have to do as much: these count as none.
        """
        stages, graph = self.stages, self.stages.graph
        asked &= not stages.even
        upper = self.needed if asked else stages.total
        fewest = ceil_div(upper, len(graph.lanes)) if asked and len(stages.lanes) == 1 else 1
        lane = stages.lane(remaining, r)
        for k, choices in enumerate(remaining):
            fitting = stages.held(k)[graph.built[k].group[choices.step, r], choices.row]
            if stages.even:
                within = lane.within(k, stages.members(k), limit)
                yield np.where(within, np.minimum(fitting, stages.least), 0)
            else:
                yield self._largest(k, lane, limit, np.minimum(fitting, upper), fewest)

    def _largest(self, k: int, lane: LaneWays, limit: int, upper: Array, fewest: int) -> Array:
        """[M] largest m up to `upper` that no member rules out, by halving; 0 below `fewest`."""
        config = self.stages.config
        low, high = np.zeros_like(upper), np.clip(upper, 0, lane.busiest(k, limit))
        middle = high
        while ((low < high) & (high >= fewest)).any():
            members = members_of(config.schedule, config.pp, k, np.maximum(middle, 1))
            within = lane.within(k, members, limit)
            low, high = np.where(within, middle, low), np.where(within, high, middle - 1)
            middle = (low + high + 1) // 2
        return np.where(low >= fewest, low, 0)


def _joined(cases: Iterable[Remaining | None]) -> Remaining | None:
    """What is in any of these; None if there are none."""
    by_stage = zip(*filter(None, cases), strict=True)
    return [Choices.joined(choices) for choices in by_stage] or None
