"""What no switch plan is quicker than: the busiest port or link, or several that share a load.

Proof. Channels together carry no more in a time than the sum of their rates allows (1). Every GPU
receives what it needs, through its port (2). One copy of a demand comes from an owner: over the
channels that the paths from all owners have in common (3), and over one of `slowest`, the slowest
channel of each path; for such a set it counts once, by its slowest common channel where that is one
of the set, else where `slowest` is the set (4).
"""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from formulations.switching.network import Line
from formulations.switching.switch import Demand, Switch


@dataclass(frozen=True)
class PortBound:
    """No plan is quicker, start-up included; the channels that show it."""

    time_ns: int
    channels: tuple[Line, ...] = ()


def port_bound(switch: Switch) -> PortBound:
    """The bound of the module; 0 where nothing moves."""
    if not switch.demands:
        return PortBound(0)
    network = switch.network
    rates = network.ns_per_byte
    loads = [0] * len(rates)  # bytes that each channel carries at least
    alone: dict[int, int] = defaultdict(int)  # of demands, by their slowest common channel
    together: dict[frozenset[int], int] = defaultdict(int)
    for demand in switch.demands:
        for gpu in demand.receivers:
            loads[network.receives(gpu)] += demand.size_bytes  # (2)
        paths = _paths(switch, demand)
        common = set.intersection(*map(set, paths))
        for channel in common:
            loads[channel] += demand.size_bytes  # (3)
        slowest = frozenset(max(path, key=rates.__getitem__) for path in paths)
        bottleneck = max(common, key=rates.__getitem__, default=None)
        if bottleneck is not None:
            alone[bottleneck] += demand.size_bytes
        if bottleneck not in slowest:
            together[slowest] += demand.size_bytes  # (4)
    times: dict[tuple[int, ...], Fraction] = {
        (channel,): load * rates[channel] for channel, load in enumerate(loads) if load
    }
    for channels, size in together.items():  # (1)
        load = size + sum(alone[channel] for channel in channels)
        together_ns = load / sum((1 / rates[channel] for channel in channels), Fraction(0))
        times[tuple(sorted(channels))] = together_ns
    best = max(times, key=times.__getitem__)
    shown = tuple(network.lines[channel] for channel in best)
    return PortBound(ceil(times[best]) + switch.latency_ns, shown)


def _paths(switch: Switch, demand: Demand) -> list[tuple[int, ...]]:
    """Channels from every owner to the node, its own port first."""
    network = switch.network
    return [
        (owner, *network.between(network.node_of[owner], demand.node)) for owner in demand.owners
    ]
