"""Recovery policies from the published inputs of Oobleck's evaluation (Jang et al., SOSP 2023).

Throughput per number of nodes, recovery costs and failure times of Table 2, in the format in which
they are kept: one JSON object, all times in ms, throughputs with `most_nodes` nodes, one fewer, ...
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from solver.replay.policy import Checkpoints, Configuration, InFlight, Policy, Recovery
from solver.replay.trace import Trace, failures_trace

NS_PER_MS = 1_000_000
MOST_NODES = 30
NODES = tuple(f"node-{i}" for i in range(MOST_NODES))


def published_trace(content: Mapping[str, Any], name: str) -> Trace:
    """The failures of that name, each of a node at random."""
    times_ns = [time_ms * NS_PER_MS for time_ms in content["traces_removal_ms"][name]]
    return failures_trace(NODES, times_ns, seed=0)


def published_policy(
    content: Mapping[str, Any], name: str, model: str, in_flight: InFlight = "lost"
) -> Policy:
    """How oobleck, varuna or bamboo trains and recovers a model; in_flight is for the first two."""
    samples = content["samples_per_step"][model]
    step_ns = {
        MOST_NODES - i: math.ceil(samples / per_s * 1e9)
        for i, per_s in enumerate(content["throughput_by_nodes"][name][model])
        if per_s
    }
    ready_ns = content.get("node_ready_ms", 0) * NS_PER_MS
    if name == "oobleck":
        pause_ns = _by_nodes(content["oobleck_reconfig_ms"][model])
        recovery = Recovery(in_flight, None, ready_ns)
    elif name == "varuna":
        costs = content["varuna"]
        pause_ns = _by_nodes(costs["restart_ms"][model])
        time_ns = _by_nodes(costs["checkpoint_ms"][model])(MOST_NODES)
        checkpoints = Checkpoints(costs["checkpoint_every_steps"], time_ns)
        recovery = Recovery(in_flight, checkpoints, ready_ns)
    else:
        costs = content["bamboo"]
        pause_ns = _by_nodes(costs["rebalance_ms"][model])
        fatal_ns = costs["restart_ms"] * NS_PER_MS
        recovery = Recovery("slowed", None, ready_ns, costs["slowdown_percent"], fatal_ns)

    def reconfigure(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        count = min(len(ready), max(step_ns))
        if count not in step_ns:
            return None
        return Configuration(ready, step_ns[count], pause_ns(count))

    return Policy(name, reconfigure, recovery, samples)


def _by_nodes(value: float | Mapping[str, float]) -> Callable[[int], int]:
    """Nanoseconds by number of nodes; between two listed numbers, the smaller one's."""
    listed = value if isinstance(value, Mapping) else {"0": value}
    times = sorted((int(nodes), math.ceil(ms * NS_PER_MS)) for nodes, ms in listed.items())

    def time_ns(nodes: int) -> int:
        return next((ns for fewest, ns in reversed(times) if fewest <= nodes), times[0][1])

    return time_ns
