"""Lower bounds on the time of a switch from prices of ports and links.

Proof. Let w >= 0 be prices of the lines that sum to W, and t the times that a plan puts on them.
The longest of t is no less than sum w t / W. That sum is linear in the bytes that the plan sends,
so each demand adds no less than its cheapest way does, all others left aside: every GPU receives
its copy, which costs the price of its port; one copy comes from the owner that is cheapest, and
each further one from the cheaper of that owner and the cheapest GPU that may forward it. No plan,
whatever its prices, is quicker than the sum over the demands of these, over W.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil, lcm

from formulations.switching.switch import Switch

Prices = Mapping[int, int]  #: by number of the port or link; those of others are 0


@dataclass(frozen=True)
class SwitchBound:
    """No plan is quicker; the prices that show it."""

    time_ns: int
    prices: Prices


def priced_bound(switch: Switch, prices: Prices) -> SwitchBound:
    """The bound of some prices, one of which is above 0."""
    network = switch.network
    rates = {line: network.ns_per_byte[line] * price for line, price in prices.items() if price}
    scale = lcm(*(rate.denominator for rate in rates.values()))
    costs = {line: int(rate * scale) for line, rate in rates.items()}
    least_ns = Fraction(_least(switch, costs), scale * sum(prices.values()))
    return SwitchBound(ceil(least_ns) + switch.latency_ns, dict(prices))


def _least(switch: Switch, costs: Mapping[int, int]) -> int:
    """Price of all demands on their cheapest ways; those of many classes have the same."""
    network = switch.network

    @cache
    def enters(owners: tuple[int, ...], node: int) -> int:
        """Of a byte from the cheapest owner."""
        into = {
            own: sum(costs.get(line, 0) for line in network.between(own, node))
            for own in {network.node_of[owner] for owner in owners}
        }
        return min(costs.get(owner, 0) + into[network.node_of[owner]] for owner in owners)

    @cache
    def ports(receivers: tuple[int, ...]) -> tuple[int, int]:
        """Of a byte for each, and of one that the cheapest of them forwards."""
        received = sum(costs.get(network.receives(gpu), 0) for gpu in receivers)
        return received, min(costs.get(gpu, 0) for gpu in receivers)

    total = 0
    for one in switch.demands:
        enter, (received, forward) = enters(one.owners, one.node), ports(one.receivers)
        copies = len(one.receivers) - 1
        total += one.size_bytes * (received + enter + copies * min(enter, forward))
    return total


def forced_bound(switch: Switch) -> SwitchBound:
    """The best bound of one port or link: what it receives, lets in, or has to send alone."""
    network = switch.network
    alone = (one for one in switch.demands if len(one.owners) == 1)
    loads = switch.loads(one.direct(one.receivers[:1]) for one in alone)
    for one in switch.demands:
        ports = list(map(network.receives, one.receivers))
        if len(one.owners) > 1:
            nodes = {network.node_of[owner] for owner in one.owners}
            paths = [set(network.between(node, one.node)) for node in nodes]
            ports += set.intersection(*paths)
        else:
            ports.pop(0)
        for line in ports:
            loads[line] += one.size_bytes
    times = [load * rate for load, rate in zip(loads, network.ns_per_byte, strict=True)]
    return priced_bound(switch, {max(range(len(times)), key=times.__getitem__): 1})
