"""A step that no fleet of the templates of a file beats, worked out without any search.

Sets. Designs i, stages k of each, numbers of pipelines x.
Step of one pipeline. m micro-batches take at least m t_k + w_k for every stage k: t_k is forward
plus backward; before its first forward the first micro-batch passes all stages before k, and after
its last backward the last one passes them again, up to the first stage, its share of tied
embeddings and its optimizer. So in a step T a pipeline takes at most min over k of
floor((T - w_k) / t_k) micro-batches.
Fleets. Of x pipelines, the most micro-batches in a step T are a knapsack over nodes: layer by
layer, the best of x - 1 pipelines on fewer nodes and one more. A fleet of x pipelines steps in
T + e or more, T the least for which that is enough and e the least exchange of gradients of any
design among x pipelines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from formulations.costs.exchange import exchange_times_ns
from formulations.costs.template_costs import TemplateCosts, template_costs
from solver.fleet_document import FleetDocument

Array = NDArray[np.int64]

#: Entries that all knapsacks may write; beyond, nothing is proved.
MOST_ENTRIES = 10**9
#: Numbers of pipelines that are told apart; neighbours go together.
MOST_RANGES = 8
#: Steps are told apart to one part in so many.
RESOLUTION = 10**6


@dataclass(frozen=True)
class _Kind:
    """A design: nodes per group, (t_k, w_k) per stage, exchange among 1, 2, .. pipelines."""

    nodes: tuple[int, ...]
    lines: tuple[tuple[int, int], ...]
    exchanges_ns: tuple[int, ...]

    def capacity(self, step_ns: int, total: int) -> int:
        """Most micro-batches of a step, up to `total`."""
        most = total
        for each_ns, wait_ns in self.lines:
            left_ns = step_ns - wait_ns
            most = min(most, left_ns // each_ns if each_ns else total * (left_ns >= 0))
        return max(0, most)


def stage_lines(costs: TemplateCosts) -> tuple[tuple[int, int], ...]:
    """(t_k, w_k) per stage, in ns; see the head of this file."""
    tail = int(costs.optimizer_ns[0]) + costs.tied * costs.embedding_ns
    lines, wait = list[tuple[int, int]](), 0
    for k, (forward, backward) in enumerate(
        zip(costs.forward_ns.tolist(), costs.backward_ns.tolist(), strict=True)
    ):
        lines.append((forward + backward, wait + tail))
        if k + 1 < costs.num_stages:
            wait += forward + backward + int(costs.send_ns[k] + costs.send_back_ns[k])
    return tuple(lines)


def least_step_ns(document: FleetDocument, step_ns: int) -> int | None:
    """No fleet of the file's designs on its ready nodes steps in less; at most `step_ns`.

    Fleets that survive as many failures as were asked for, or as this one does, if fewer. None
    where there are too many mixes of nodes to look at.
    """
    instance = document.instance
    gone = [name.rpartition("-")[0] for name in document.away]
    available = tuple(g.nodes - gone.count(g.name) for g in instance.cluster.groups)
    total = instance.workload.global_batch // document.designs[0].strategy.micro_batch
    fewest = min(document.faults, document.survives) + 1
    smallest = min(design.template.num_nodes for design in document.designs)
    most = min(total, sum(available) // smallest)
    states = prod(count + 1 for count in available)
    entries = states * most * len(document.designs) * MOST_RANGES * RESOLUTION.bit_length()
    if entries > MOST_ENTRIES:
        return None
    kinds = [
        _Kind(
            design.template.counts(len(available)),
            stage_lines(template_costs(instance, design.strategy, design.template)),
            exchange_times_ns(instance, design, most),
        )
        for design in document.designs
    ]
    least = step_ns
    for numbers in _ranges(fewest, most):
        exchange_ns = min(kind.exchanges_ns[x - 1] for kind in kinds for x in numbers)
        own = _least_ns(kinds, available, total, numbers, least - exchange_ns)
        least = min(least, own + exchange_ns)
    return least


def _ranges(first: int, last: int) -> Iterator[range]:
    """first..last in at most MOST_RANGES ranges."""
    width = max(1, -(-(last - first + 1) // MOST_RANGES))
    for start in range(first, last + 1, width):
        yield range(start, min(start + width, last + 1))


def _least_ns(
    kinds: Sequence[_Kind], available: tuple[int, ...], total: int, numbers: range, limit_ns: int
) -> int:
    """No fleet of so many pipelines steps in less, before the exchange; `limit_ns` at most."""
    low, high = 0, max(0, limit_ns)
    while high - low > high // RESOLUTION:
        middle = (low + high) // 2
        capacities = [kind.capacity(middle, total) for kind in kinds]
        if _most(kinds, capacities, available, numbers) >= total:
            high = middle
        else:
            low = middle + 1
    return low


def _most(
    kinds: Sequence[_Kind], capacities: Sequence[int], available: tuple[int, ...], numbers: range
) -> int:
    """Most micro-batches of so many pipelines on the nodes, of which some may be idle."""
    sizes = tuple(count + 1 for count in available)
    layer = np.zeros(sizes, dtype=np.int64)
    nothing = -(1 << 60)
    best = nothing
    for number in range(1, numbers.stop):
        following = np.full(sizes, nothing, dtype=np.int64)
        for kind, capacity in zip(kinds, capacities, strict=True):
            if capacity and all(n < size for n, size in zip(kind.nodes, sizes, strict=True)):
                to = following[tuple(slice(n, None) for n in kind.nodes)]
                ends = (size - n for n, size in zip(kind.nodes, sizes, strict=True))
                np.maximum(to, layer[tuple(map(slice, ends))] + capacity, out=to)
        layer = following
        if number in numbers:
            best = max(best, int(layer[(-1,) * len(sizes)]))
    return best
