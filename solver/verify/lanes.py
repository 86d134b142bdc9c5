"""Whether any plan of a shape can be faster than a claimed bound where all nodes are of one size.

Nodes of q slots each, q a divisor of dp: every node runs one stage of one lane, q replicas that are
always together. Any way to deal the nodes to stages and lanes is a node order, so orders need not
be told apart, however many there are.

Proof. Take a plan within D. A lane uses p nodes, c_j of group j, and one of its replicas has the
most micro-batches, s. `rounds` says for any lane with these c, alone in all orders, how many
micro-batches that can be at most, S(c); a stage's tail is no shorter than if all its nodes were
like that of the lane. The replicas of a lane have q s at most, all replicas M: the s of all lanes
are M / q at least, while the c add up to all nodes. With B_l(n) the largest sum of S of l lanes
that take the nodes n:

(0) with m micro-batches of time t each a stage is busy for m t <= D; so with weights w of the
    groups, added up over the stages of a replica, m sum_x min_j w_j t_xj <= D sum_j w_j c_j;
(1) with all lanes and all nodes B >= M / q, or there is no such plan;
(2) a lane with c has s >= M / q - B of the other lanes with the other nodes; and with even shares
    s = M / dp for all lanes. Its stages are those that leave it so much;
(3) all lanes have the same layers on a stage: what no lane can have there is struck out for all.

These are repeated until nothing changes.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from formulations.instance import Instance
from formulations.plan import Shape
from formulations.units import ceil_div
from solver.verify.bounds import Prover
from solver.verify.clock import Clock
from solver.verify.orders import OrderGraph, Spot, Used
from solver.verify.refutation import Choices, Left, Refutation

Mask = NDArray[np.bool_]
Nodes = tuple[int, ...]  #: nodes by group
Hosts = tuple[tuple[int, ...] | None, ...]  #: per stage the groups it stands on; None: undecided

#: With more stages of all ways to choose the nodes of a lane, or ways to have dealt some of the
#: nodes, nothing is found out; with more than the few, it takes seconds.
FEW_STAGES = 500
MOST_STAGES = 5000
MOST_DEALT = 2000


class LaneGraph(OrderGraph):
    """The ways of a lane on given nodes, and on stages whose hosts are decided only on these.

    Elsewhere all nodes of a stage are taken to be like its own.
    """

    def __init__(self, instance: Instance, shape: Shape, nodes: Nodes, hosts: Hosts) -> None:
        super().__init__(instance, shape)
        self.nodes, self.hosts, self.number = nodes, hosts, shape.dp // self.width
        self.lanes = range(1)

    @property
    def most_steps(self) -> int:
        """Any number: `Lanes.possible` sees to it that they are few."""
        return sys.maxsize

    def _placed(
        self, k: int, used: Used, before: tuple[Spot, ...]
    ) -> Iterator[tuple[Used, tuple[Spot, ...]]]:
        first = k * self.shape.dp
        for j, limit in enumerate(self.nodes):
            if used[j] < limit and j in (self.hosts[k] or (j,)):
                more = (*used[:j], used[j] + 1, *used[j + 1 :])
                yield more, (Spot(j, range(first, first + self.width)),)

    def _tail_row(self, k: int, spots: tuple[Spot, ...]) -> int:
        (own,) = spots
        others = [Spot(j, own.slots) for j in self.hosts[k] or ()]
        return super()._tail_row(k, (*others, *spots * (self.number - len(others))))


def lane_nodes(left: int, available: Nodes) -> Iterator[Nodes]:
    """All choices of `left` nodes."""
    if not available:
        yield from [()] if left == 0 else []
        return
    for count in range(min(left, available[0]) + 1):
        yield from ((count, *rest) for rest in lane_nodes(left - count, available[1:]))


def deal(most: Mapping[Nodes, int], lanes: int) -> list[dict[Nodes, int]]:
    """B_0, B_1, ..: most micro-batches by the nodes that so many lanes take."""
    found: list[dict[Nodes, int]] = [{(0,) * len(next(iter(most), ())): 0}]
    for _ in range(lanes):
        sums: dict[Nodes, int] = {}
        for taken, done in found[-1].items():
            for nodes, own in most.items():
                both = tuple(map(sum, zip(taken, nodes, strict=True)))
                sums[both] = max(sums.get(both, 0), done + own)
        found.append(sums)
    return found


@dataclass(frozen=True)
class LanesLeft:
    """What plans below the claim may use.

    runs: per stage [n, n] its layers. hosts: per stage the groups that it stands on, all of them,
    where that is decided. least, most: micro-batches of a lane, by its nodes. ways: what such a
    lane may use.
    """

    runs: tuple[Mask, ...]
    hosts: Hosts
    least: dict[Nodes, int]
    most: dict[Nodes, int]
    ways: dict[Nodes, Left]


class Lanes:
    """The question for one shape."""

    def __init__(self, prover: Prover, shape: Shape, clock: Clock | None = None) -> None:
        self.prover, self.shape, self.clock = prover, shape, clock or Clock()
        groups = prover.instance.cluster.groups
        sizes = {
            g.gpus_per_node // shape.tp for g, n in zip(groups, shape.nodes_used, strict=True) if n
        }
        self.size = max(sizes)
        self.alike = len(sizes) == 1 and shape.dp % self.size == 0
        self.number = shape.dp // self.size
        total = prover.instance.workload.global_batch // shape.micro_batch
        even = prover.instance.search.micro_batches == "even"
        self.fewest = total // shape.dp if even else 1
        self.total = ceil_div(total, self.size)
        self.largest = self.fewest if even else min(self.total, total - shape.dp + 1)
        self._refutations: dict[tuple[Nodes, Hosts], Refutation] = {}

    @property
    def num_stages(self) -> int:
        """Of all ways to choose the nodes of a lane."""
        return comb(self.shape.pp + len(self.shape.nodes_used) - 1, self.shape.pp) * self.shape.pp

    @property
    def possible(self) -> bool:
        """Whether the argument holds for the shape, with few enough ways."""
        used = self.shape.nodes_used
        return (
            self.alike
            and self.num_stages <= MOST_STAGES
            and prod(n + 1 for n in used) // (max(used) + 1) <= MOST_DEALT
        )

    def refutes(self, below_ns: int) -> bool:
        """True only if no plan of the shape has a step time below this."""
        return self.possible and self.remaining(self.everything(below_ns), below_ns) is None

    def everything(self, below_ns: int) -> LanesLeft:
        """All plans below the claim, as far as (0) tells."""
        most = {
            nodes: min(self.largest, self._by_work(nodes, below_ns - 1))
            for nodes in lane_nodes(self.shape.pp, self.shape.nodes_used)
        }
        least = self.needed(most)
        return LanesLeft(
            runs=(self.prover.enough_blocks,) * self.shape.pp,
            hosts=(None,) * self.shape.pp,
            least=least,
            most={nodes: most[nodes] for nodes in least},
            ways={},
        )

    def _by_work(self, nodes: Nodes, limit: int) -> int:
        """Largest m by (0)."""
        shape = self.shape
        used = tuple(j for j, n in enumerate(shape.nodes_used) if n)
        each, weights = self.prover.work_share(used, shape.tp, shape.micro_batch, shape.recompute)
        room = limit * sum(weight * nodes[j] for j, weight in zip(used, weights, strict=True))
        return room // each if each else self.largest

    def remaining(self, left: LanesLeft, below_ns: int) -> LanesLeft | None:
        """What plans with a step time below this may use; None if there are none."""
        while True:
            self.clock.check()
            ways, most = self._most(left, below_ns)
            least = self.needed(most)
            if not least:
                return None
            runs = tuple(
                self._used([ways[nodes][k] for nodes in least]) for k in range(self.shape.pp)
            )
            done = least == left.least and np.array_equal(runs, left.runs)
            left = LanesLeft(
                runs,
                left.hosts,
                least,
                {nodes: most[nodes] for nodes in least},
                {nodes: ways[nodes] for nodes in least},
            )
            if done:
                return left

    def _most(self, left: LanesLeft, below_ns: int) -> tuple[dict[Nodes, Left], dict[Nodes, int]]:
        """What lanes may use, and S, by their nodes; without those that can do too little."""
        ways, most = {}, {}
        for nodes, least in left.least.items():
            question = self.refutation(nodes, left.hosts).with_needed(least)
            if not all(len(step.source) for step in question.steps):
                continue
            known = left.ways.get(nodes) or question.everything(below_ns)
            known = [
                own.take(run[own.first, own.last])
                for own, run in zip(known, left.runs, strict=True)
            ]
            found = question.remaining(known, below_ns)
            if found is not None:
                ways[nodes] = found
                most[nodes] = self._largest(question, found, left.most[nodes], below_ns)
        return ways, most

    def _largest(self, question: Refutation, left: Left, most: int, below_ns: int) -> int:
        """S, at most `most`: above it nothing remains."""
        most = min(most, *(int(own.max()) for own in question.most(left, 0, below_ns - 1)))
        while most and question.with_needed(most).remaining(left, below_ns) is None:
            most -= 1
        return most

    def refutation(self, nodes: Nodes, hosts: Hosts) -> Refutation:
        """What `rounds` says of a lane with these nodes."""
        key = nodes, hosts
        if key not in self._refutations:
            graph = LaneGraph(self.prover.instance, self.shape, nodes, hosts)
            self._refutations[key] = Refutation(self.prover, self.shape, graph, self.clock)
        return self._refutations[key]

    def needed(self, most: Mapping[Nodes, int]) -> dict[Nodes, int]:
        """(2) by nodes, for lanes that can do so much."""
        others = deal(most, self.number - 1)[-1]
        least = {}
        for nodes, own in most.items():
            rest = tuple(n - c for n, c in zip(self.shape.nodes_used, nodes, strict=True))
            if rest in others and self.total - others[rest] <= own:
                least[nodes] = max(self.fewest, self.total - others[rest])
        return least

    def _used(self, choices: Sequence[Choices]) -> Mask:
        """[n, n] layers that some lane may have on a stage."""
        used = np.zeros_like(self.prover.enough_blocks)
        for own in choices:
            used[own.first, own.last] = True
        return used
