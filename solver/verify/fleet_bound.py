"""A step that no fleet of the templates of a file beats, worked out without any search.

Sets. Designs i, stages k of each, numbers of pipelines x.
Step of one pipeline. m micro-batches take at least m t_k + w_k for every stage k of p: t_k is
forward plus backward; before its first forward the first micro-batch passes all stages before k,
and after its last backward the last one passes them again, up to the first stage, its tied
embeddings and its optimizer. With 1F1B they also take the latency, all of one micro-batch, plus
(m - 1) t_k less (p - 1 - k) f_k, or b_k: follow the first micro-batch down and back to k, then all
that is left there, of which up to p - 1 - k forwards were done before, and go up; or all that k
does before the last forward, up to p - 1 - k backwards less, then the last micro-batch down and
back. So in a step T a pipeline takes at most min over these of floor((T - w) / t) micro-batches.
Fleets. Of x pipelines, the most micro-batches in a step T are a knapsack over nodes: layer by
layer, the best of x - 1 pipelines on fewer nodes and one more. A fleet of x pipelines steps in
T + e or more, T the least for which that is enough and e the least exchange of gradients of any
design among x pipelines; neighbouring x go together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from formulations.costs.template_costs import TemplateCosts, exchange_times_ns, template_costs
from solver.fleet_document import FleetDocument

#: Entries that all knapsacks may write; beyond, nothing is proved.
MOST_ENTRIES = 10**9
#: Numbers of pipelines go together with up to one in so many above them.
WIDTH = 4
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
        capacity = total
        for each_ns, wait_ns in self.lines:
            left_ns = step_ns - wait_ns
            capacity = min(capacity, left_ns // each_ns if each_ns else total * (left_ns >= 0))
        return max(0, capacity)


def stage_lines(costs: TemplateCosts) -> tuple[tuple[int, int], ...]:
    """(t_k, w_k) per stage, in ns, and with 1F1B another per stage; see the head of this file."""
    tail = int(costs.optimizer_ns[0]) + costs.tied * costs.embedding_ns
    forward, backward = costs.forward_ns.tolist(), costs.backward_ns.tolist()
    back_and_forth = [*(costs.send_ns + costs.send_back_ns).tolist(), 0]
    latency = sum(forward) + sum(backward) + sum(back_and_forth)
    lines, wait = list[tuple[int, int]](), 0
    for k, transfer in enumerate(back_and_forth):
        busy, others = forward[k] + backward[k], costs.num_stages - 1 - k
        lines.append((busy, wait + tail))
        if costs.schedule == "1f1b":
            hidden = busy + others * min(forward[k], backward[k])
            lines.append((busy, latency - hidden + tail))
        wait += busy + transfer
    return tuple(lines)


def least_step_ns(document: FleetDocument, step_ns: int) -> int | None:
    """No fleet of the file's designs on its ready nodes steps in less; at most `step_ns`.

    Fleets that survive as many failures as were asked for, or as this one does, if fewer. None
    where there are too many mixes of nodes to look at.
    """
    instance, available, total = document.instance, document.nodes_left, document.micro_batches
    fewest = min(document.faults, document.survives) + 1
    smallest = min(design.template.num_nodes for design in document.designs)
    most_pipelines = min(total, sum(available) // smallest)
    ranges = sorted(
        _ranges(fewest, most_pipelines), key=lambda numbers: len(document.pipelines) not in numbers
    )
    states = prod(count + 1 for count in available)
    looks = len(ranges) + RESOLUTION.bit_length()
    if states * most_pipelines * len(document.designs) * looks > MOST_ENTRIES:
        return None
    kinds = [
        _Kind(
            design.template.counts(len(available)),
            stage_lines(template_costs(instance, design.strategy, design.template)),
            exchange_times_ns(instance, design, most_pipelines),
        )
        for design in document.designs
    ]
    least_ns = step_ns
    for numbers in ranges:
        exchange_ns = min(kind.exchanges_ns[x - 1] for kind in kinds for x in numbers)
        limit_ns = least_ns - exchange_ns
        shortest_ns = _least_ns(kinds, available, total, numbers, limit_ns)
        least_ns = min(least_ns, shortest_ns + exchange_ns)
    return least_ns


def _ranges(first: int, last: int) -> Iterator[range]:
    """Parts of first..last, narrow at first, where one pipeline more adds most to the exchange."""
    while first <= last:
        end = min(first + max(1, first // WIDTH), last + 1)
        yield range(first, end)
        first = end


def _least_ns(
    kinds: Sequence[_Kind], available: tuple[int, ...], total: int, numbers: range, limit_ns: int
) -> int:
    """No fleet of so many pipelines steps in less, before the exchange; `limit_ns` at most."""

    def enough(step_ns: int) -> bool:
        capacities = [kind.capacity(step_ns, total) for kind in kinds]
        return _most(kinds, capacities, available, numbers) >= total

    low, high = 0, max(0, limit_ns)
    if not enough(high - 1):
        return high
    while high - low > high // RESOLUTION:
        middle = (low + high) // 2
        if enough(middle):
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
