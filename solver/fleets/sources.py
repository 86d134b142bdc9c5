"""Which node sends every missing layer, so that the busiest link is done soon."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction

from formulations.transition import Copy, Links


class _Senders:
    """Copies with a source, and how long each sending link is busy with them."""

    def __init__(self, links: Links, layer_bytes: Sequence[int]) -> None:
        self._links = links
        self._layer_bytes = layer_bytes
        self._loads: dict[tuple[str, int, int], Fraction] = defaultdict(Fraction)

    def uses(self, copy: Copy) -> dict[tuple[str, int, int], Fraction]:
        """Links that the choice of a source decides, and the time that the copy takes on each."""
        loads = self._links.loads_ns([copy], self._layer_bytes)
        return {link: time for link, time in loads.items() if link[0] != "in"}

    def after(self, copy: Copy) -> Fraction:
        """When the busiest link of the copy would be done with it."""
        return max(self._loads[link] + time for link, time in self.uses(copy).items())

    def add(self, copy: Copy, sign: int = 1) -> None:
        """Counts a copy, or no longer."""
        for link, time in self.uses(copy).items():
            self._loads[link] += sign * time

    def busiest(self) -> tuple[str, int, int]:
        """The link that is done last."""
        return max(self._loads, key=lambda link: self._loads[link])

    def load(self, link: tuple[str, int, int]) -> Fraction:
        """When a link is done."""
        return self._loads[link]


def chosen_sources(
    links: Links,
    held: dict[int, range],
    wanted: Iterable[tuple[int, int]],
    layer_bytes: Sequence[int],
) -> tuple[Copy, ...]:
    """A copy for every wanted (node, layer); source None exactly where no node holds the layer.

    Layers with few holders come first. Up to the time that the slowest node receives for in any
    case, a node that sends to the target already goes on to do so; beyond, each takes the holder
    whose links are then least busy. At last copies leave the busiest link, if it is busy longer
    than that, as long as they are done sooner from another holder.
    """
    holders: dict[int, list[int]] = defaultdict(list)
    for node, layers in sorted(held.items()):
        for layer in layers:
            holders[layer].append(node)
    order = sorted(wanted, key=lambda w: (len(holders[w[1]]), -layer_bytes[w[1]], w))
    senders = _Senders(links, layer_bytes)
    received = links.loads_ns((Copy(layer, None, node) for node, layer in order), layer_bytes)
    slowest = max(received.values(), default=Fraction(0))
    sending = set[tuple[int | None, int]]()
    copies = list[Copy]()

    def rank(copy: Copy) -> tuple[Fraction, bool, Fraction]:
        after = senders.after(copy)
        return max(after, slowest), (copy.source, copy.target) not in sending, after

    for node, layer in order:
        if not holders[layer]:
            copies.append(Copy(layer, None, node))
            continue
        options = (Copy(layer, source, node) for source in holders[layer])
        copies.append(min(options, key=rank))
        senders.add(copies[-1])
        sending.add((copies[-1].source, node))
    while _moved(senders, copies, holders, slowest):
        pass
    return tuple(sorted(copies, key=lambda copy: (copy.target, copy.layer)))


def _moved(
    senders: _Senders, copies: list[Copy], holders: dict[int, list[int]], soon: Fraction
) -> bool:
    """Whether a copy left the busiest link, done after `soon`, and is done sooner even so."""
    if all(copy.source is None for copy in copies):
        return False
    link = senders.busiest()
    latest = senders.load(link)
    if latest <= soon:
        return False
    for n, copy in enumerate(copies):
        if copy.source is None or link not in senders.uses(copy):
            continue
        senders.add(copy, -1)
        options = (Copy(copy.layer, source, copy.target) for source in holders[copy.layer])
        best = min(options, key=senders.after)
        copies[n] = best if senders.after(best) < latest else copy
        senders.add(copies[n])
        if copies[n] != copy:
            return True
    return False
