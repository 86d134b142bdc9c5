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
from math import ceil, lcm

from formulations.switching.switch import Demand, Switch

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
    total = sum(one.size_bytes * _least(switch, one, costs) for one in switch.demands)
    least_ns = Fraction(total, scale * sum(prices.values()))
    return SwitchBound(ceil(least_ns) + switch.latency_ns, dict(prices))


def _least(switch: Switch, demand: Demand, costs: Mapping[int, int]) -> int:
    """Price of a byte of a demand on its cheapest way."""
    network = switch.network
    into = {
        node: sum(costs.get(line, 0) for line in network.between(node, demand.node))
        for node in {network.node_of[owner] for owner in demand.owners}
    }
    own = {costs.get(owner, 0) + into[network.node_of[owner]] for owner in demand.owners}
    received = sum(costs.get(network.receives(gpu), 0) for gpu in demand.receivers)
    enters, copies = min(own), len(demand.receivers)
    forwarded = min(enters, *(costs.get(gpu, 0) for gpu in demand.receivers))
    return received + enters + (copies - 1) * forwarded


def forced_bound(switch: Switch) -> SwitchBound:
    """The best bound of one port or link: what it receives, lets in, or has to send alone."""
    network = switch.network
    loads = [0] * len(network.lines)
    for one in switch.demands:
        for gpu in one.receivers:
            loads[network.receives(gpu)] += one.size_bytes
        nodes = {network.node_of[owner] for owner in one.owners}
        paths = [set(network.between(node, one.node)) for node in nodes]
        for line in set.intersection(*paths):
            loads[line] += one.size_bytes
        if len(one.owners) == 1:
            loads[one.owners[0]] += one.size_bytes
    times = [load * rate for load, rate in zip(loads, network.ns_per_byte, strict=True)]
    return priced_bound(switch, {max(range(len(times)), key=times.__getitem__): 1})
