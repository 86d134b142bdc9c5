"""Recovery policies on our own plans: samples trained through failures, and where the time went.

    python -m bench policies [INSTANCE ...] [--every 6h 1h 10m] [--bandwidth "10 Gbit/s"]

Every policy plays the same failures on the same instance. Records go to
bench/results/policies.jsonl.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bench.command import command
from bench.records import INSTANCES, append, record
from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.units import parse_quantity
from solver.options import SolveOptions
from solver.replay.player import replay
from solver.replay.policies import InstancePolicies, PolicyName, PolicyOptions, fleet_policy
from solver.replay.policy import Policy
from solver.replay.trace import Trace, length_ns, regular_trace

SEED = 0  # of the nodes that fail
Name = PolicyName | Literal["oobleck"]
POLICIES: tuple[Name, ...] = ("oobleck", "ours", "restart", "redundancy")
#: A horizon in which copying layers counts nothing.
ENDLESS_NS = 10**24


def with_bandwidth(instance: Instance, bytes_per_s: float) -> Instance:
    """The instance with another bandwidth between all nodes."""
    cluster = instance.cluster
    groups = tuple(
        group.but(inter_node={"bandwidth_bytes_per_s": bytes_per_s}) for group in cluster.groups
    )
    return instance.but(cluster=cluster.but(groups=groups))


def policy_of(policies: InstancePolicies, name: Name, trace: Trace) -> Policy:
    """The policy of that name; oobleck takes the fleet with the shortest step, as in its paper."""
    if name != "oobleck":
        return policies.of(name, trace)
    options = policies.options
    eager = fleet_policy(policies.fleets, options.in_flight, options.pause_ns, ENDLESS_NS)
    return replace(eager, name=name)


def measured(
    instance: Instance, intervals: list[str], bandwidth: str | None, limit_s: float
) -> list[dict[str, Any]]:
    """One record per interval and policy; plans and templates are made once."""
    search = SolveOptions(time_limit_s=limit_s)
    policies = InstancePolicies(instance, PolicyOptions(search=search), None)
    records = []
    for name in POLICIES:
        for interval in intervals:
            interval_ns = length_ns(interval)
            assert interval_ns, interval
            trace = regular_trace(instance.cluster.node_names, interval_ns, SEED)
            start_s = time.perf_counter()
            run = replay(trace, policy_of(policies, name, trace))
            figures = {
                "instance": instance.name,
                "bandwidth": bandwidth,
                "interval": interval,
                "policy": name,
                "samples": run.samples,
                "samples_per_s": run.samples_per_s,
                "time_by_cause_s": {c: ns / 1e9 for c, ns in run.time_by_cause_ns.items()},
                "plans": policies.summary,
                "runtime_s": time.perf_counter() - start_s,
                "options": {
                    "time_limit_s": limit_s,
                    "faults": policies.options.faults,
                    "seed": SEED,
                },
            }
            records.append(record("policies", figures))
            print(line(figures), flush=True)
    return records


def line(figures: dict[str, Any]) -> str:
    """One run in words."""
    times = figures["time_by_cause_s"]
    total = sum(times.values())
    lost = ", ".join(
        f"{cause} {100 * value / total:.1f} %"
        for cause, value in times.items()
        if value and cause != "training"
    )
    return (
        f"{figures['instance']:20} {figures['interval']:4} {figures['policy']:10}"
        f"{figures['samples_per_s']:10.3f} samples/s; {lost}; {figures['runtime_s']:.1f} s"
    )


def main() -> None:
    """Runs the benchmark and prints one line per run."""
    parser = command("policies", time_limit=20.0)
    parser.add_argument("instance", nargs="*", help="file, or name in instances/")
    parser.add_argument("--every", nargs="+", default=["6h", "1h", "10m"], help="intervals")
    parser.add_argument("--bandwidth", help="between all nodes, such as '10 Gbit/s'")
    chosen = parser.parse_args()
    names = chosen.instance or sorted(path.stem for path in INSTANCES.glob("oobleck_*.yaml"))
    for name in names:
        path = Path(name) if name.endswith(".yaml") else INSTANCES / f"{name}.yaml"
        instance = load_instance(path)
        if chosen.bandwidth:
            instance = with_bandwidth(instance, parse_quantity(chosen.bandwidth, "bandwidth"))
        append(chosen.out, measured(instance, chosen.every, chosen.bandwidth, chosen.time_limit))
