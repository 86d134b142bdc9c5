"""How long a switch takes at least and at most, from its two plans alone: no file, no planner."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import groupby
from math import ceil
from operator import itemgetter

from formulations.instance import Cluster, Workload
from formulations.plan import Plan
from tests.oracles.held_parts import Holdings, Kind
from tests.oracles.switch_cells import cells_between
from tests.oracles.switch_links import Line, Need, Network
from tests.oracles.switch_rule import LayerSlices, rule_hops


@dataclass(frozen=True)
class Moved:
    """What moves: classes node by node, and the slices of every class."""

    needs: list[Need]
    slices: list[list[LayerSlices]]


class SwitchBounds:
    """Bounds of the switches of one model on some machines; what a plan holds is kept."""

    def __init__(self, cluster: Cluster, workload: Workload) -> None:
        self._cluster, self._workload = cluster, workload
        self.network = Network(cluster)
        self._nodes = list(self.network.node_of.items())
        self._holdings: dict[int, Holdings] = {}  # by identity of the plans, which they keep
        self._gpus, self._by_node = cache(self._gpus_of), cache(self._by_node_of)

    def holdings(self, plan: Plan) -> Holdings:
        """What the GPUs hold under a plan."""
        if id(plan) not in self._holdings:
            self._holdings[id(plan)] = Holdings(self._cluster, self._workload, plan)
        return self._holdings[id(plan)]

    def of(self, before: Plan, after: Plan, kind: Kind) -> tuple[int, int]:
        """What no switch plan goes below, and what that of the published rule takes, ns.

        Of two plans that `check_plan` accepts; 0 and 0 where nothing moves.
        """
        network, moved = self.network, self.moved(before, after, [kind])
        start_ns = network.start_ns(moved.needs)
        rule_ns = network.busiest_ns(network.loads(rule_hops(moved.slices, moved.needs, network)))
        return ceil(_forced_ns(moved.needs, network)) + start_ns, ceil(rule_ns) + start_ns

    def moved(self, before: Plan, after: Plan, kinds: Sequence[Kind]) -> Moved:
        """Cells with the same owners and needers are a class; the largest first."""
        found: dict[tuple[Kind, int, int], list[LayerSlices]] = defaultdict(list)
        ends = self.holdings(before), self.holdings(after)
        for kind in kinds:
            for own in cells_between(self._workload, *ends, kind):
                for box, owners, missing in own.cells:
                    size = own.size_bytes(box, self._workload)
                    found[kind, owners, missing].append((own.layers, size))
        classes = [
            (-sum(size * (end - first) for (first, end), size in slices), key, slices)
            for key, slices in found.items()
        ]
        classes.sort(key=lambda one: (one[0], *map(self._gpus, one[1][1:])))
        needs = [
            Need(n, sources, node, receivers, -size)
            for n, (size, (_, owners, missing), _) in enumerate(classes)
            for sources in [self._named(owners)]
            for node, receivers in self._by_node(missing)
        ]
        return Moved(needs, [slices for _, _, slices in classes])

    def _gpus_of(self, mask: int) -> tuple[int, ...]:
        found = list[int]()
        while mask:  # by what is there: machines may be very many
            found.append(mask.bit_length() - 1)
            mask ^= 1 << found[-1]
        return tuple(reversed(found))

    def _by_node_of(self, mask: int) -> list[tuple[str, tuple[str, ...]]]:
        named = [self._nodes[n] for n in self._gpus(mask)]
        groups = groupby(named, key=itemgetter(1))
        return [(node, tuple(gpu for gpu, _ in own)) for node, own in groups]

    def _named(self, mask: int) -> tuple[str, ...]:
        return tuple(gpu for _, gpus in self._by_node(mask) for gpu in gpus)


def _forced_ns(needs: Iterable[Need], network: Network) -> Fraction:
    """Time that some ports and links take at least, without start-up.

    Proof. Every GPU receives what it needs. One copy of a need comes from an owner: over the lines
    that the ways from all owners have in common, and over one of `slowest`, which has a line of
    each way. In a time, lines together carry no more than the sum of their rates allows; a need
    counts once for them: by the slowest line in common where that is one of them, else where
    `slowest` is all of them.
    """
    loads, alone = defaultdict[Line, int](int), defaultdict[Line, int](int)
    together = defaultdict[frozenset[Line], int](int)
    for need in needs:
        for gpu in need.receivers:
            loads["receive", gpu, None] += need.size_bytes
        ways = [network.way_from(owner, need.node) for owner in need.owners]
        common = set(ways[0]).intersection(*ways[1:])
        for line in common:
            loads[line] += need.size_bytes
        slowest = frozenset(max(way, key=network.ns_per_byte) for way in ways)
        one = max(common, key=network.ns_per_byte, default=None)
        if one is not None:
            alone[one] += need.size_bytes
        if one not in slowest:
            together[slowest] += need.size_bytes
    times = (
        (size + sum(alone[line] for line in lines))
        / sum((1 / network.ns_per_byte(line) for line in lines), Fraction(0))
        for lines, size in together.items()
    )
    return max((network.longest_ns(loads), *times))
