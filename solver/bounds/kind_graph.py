"""The layered graph of one replica over kinds of nodes, see `kind_automaton`.

A stage costs what the nodes of its kind cost at least, wherever they stand, see `node_costs`. So
every replica of every plan is a path that is no longer than it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from formulations.costs.placement import Placer
from solver.bounds.kind_automaton import Step
from solver.bounds.kinds import Kind, least_of, least_sends
from solver.bounds.node_costs import cheapest, least_costs
from solver.layered.placements import Columns
from solver.layered.problem import Arcs, Array, Intervals, Mask, SplitProblem


@dataclass(frozen=True)
class Tail:
    """What follows the last backward of a stage: sync, finish [n, n], embedding on both ends."""

    sync: Array
    finish: Array
    embedding: tuple[int, int]


class KindGraph:
    """What one replica of a shape costs on J kinds; of each the groups, least sync first.

    flows: replicas at least that share a link between zones, see `least_sends`.
    """

    def __init__(
        self, intervals: Intervals, placer: Placer, kinds: Sequence[Kind], flows: int
    ) -> None:
        self.tables = intervals.tables
        costs = {j: least_costs(placer, j) for kind in kinds for j in kind}
        self.kinds = [tuple(sorted(kind, key=lambda j: costs[j].sync_ns)) for kind in kinds]
        self._least = [cheapest([costs[j] for j in kind]) for kind in kinds]
        self._send_ns = least_sends(self._least, kinds, placer.zones, flows)
        self._columns = Columns(intervals, kinds)
        self.forward, self.backward, _ = self._columns.times()
        self.optimizer = least_of(intervals.optimizer, kinds)

    @property
    def work(self) -> Array:
        """[J, n, n] forward and backward pass at least, without weight gradients split off."""
        return self.forward + self.backward

    @cached_property
    def tails(self) -> list[Tail]:
        """[J] of a stage with a node of the kind, at least."""
        return [
            Tail(one.sync_matrix, optimizer + one.gather_matrix, one.embedding)
            for one, optimizer in zip(self._least, self.optimizer, strict=True)
        ]

    def arcs(
        self,
        stage: int,
        steps: Sequence[Step],
        allowed: Sequence[Mask],
        rows: Array,
        tails: list[Tail],
        share: int,
    ) -> Arcs:
        """The steps of a stage, with the layers allowed on each; rows: [J] of the tails.

        Of replicas with `share` micro-batches, or more.
        """
        source, target, before, now = np.array(steps).T
        send = self._send_ns[before, now][:, None] * (stage > 0)
        last = stage == self.tables.shape.pp - 1
        embedding = np.array([tail.embedding[last] for tail in tails], dtype=np.int64)
        return Arcs(
            source=source,
            target=target,
            column=now[:, None] + self._columns.first(stage, share),
            send=send,
            send_back=send,
            tail=rows[now],
            embedding=embedding[rows[now]] * (last or stage == 0),
            allowed=tuple(allowed),
            begins=tuple(self.kinds[j][:1] for j in now.tolist()),
        )

    def problem(self, stages: Sequence[Arcs], tails: list[Tail], share: int) -> SplitProblem:
        """One replica with `share` micro-batches."""
        forward, backward, weight = self._columns.times()
        return SplitProblem(
            schedule=self.tables.shape.schedule,
            blocking=self.tables.instance.search.blocking_sends,
            tied=self.tables.tied,
            stages=tuple(stages),
            micro_batches=(share,),
            forward=forward,
            backward=backward,
            weight=weight,
            sync=np.stack([tail.sync for tail in tails]),
            finish=np.stack([tail.finish for tail in tails]),
        )
