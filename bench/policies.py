"""Recovery policies on our own plans: samples trained through failures, and where the time went.

    python -m bench policies [INSTANCE ...] [--every 6h 1h 10m] [--trace ec2_p3 gcp_a2]
                             [--bandwidth "10 Gbit/s"] [--svg FOLDER]

Every policy plays the same failures on the same instance. Records go to
bench/results/policies.jsonl.

Traces, as in Oobleck's figure 10: how many spot instances there were on EC2 (p3) and GCP
(a2-highgpu-1g), by seconds: Thorpe et al., Bamboo (NSDI 2023), uclasystem/bamboo at 8080929,
traces/p3-trace.csv and traces/gcloud/a100x1-east1b.txt.
"""

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from bench.command import command
from bench.records import INSTANCES, append, record
from formulations.instance import Instance
from formulations.instance.documents import csv_rows
from formulations.instance.load import load_instance
from formulations.units import parse_quantity
from solver.options import PolicyName, SolveOptions
from solver.replay.player import Replay, replay
from solver.replay.policies import InstancePolicies, PolicyOptions
from solver.replay.policy import Policy
from solver.replay.trace import Event, Trace, length_ns, regular_trace
from solver.report.fleet import replay_picture

TRACES = Path(__file__).parent / "traces"
GAP = 0.02  # of plans, of which a trace asks for one per number of nodes
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


def spot_trace(name: str, nodes: Sequence[str], seed: int) -> Trace:
    """The numbers of a trace, as shares of the most it has, of these nodes; drawn which ones."""
    rows = csv_rows(TRACES / f"{name}.csv", "a table seconds,nodes")[1:]
    counts = [(int(second) * 10**9, int(count)) for second, count in rows]
    most, drawn = max(count for _, count in counts), random.Random(seed)
    there = drawn.sample(list(nodes), round(len(nodes) * counts[0][1] / most))
    away, start = [node for node in nodes if node not in there], tuple(there)
    events = list[Event]()
    for time_ns, count in counts[1:]:
        while (more := round(len(nodes) * count / most) - len(there)) != 0:
            left, reached = (away, there) if more > 0 else (there, away)
            node = left.pop(drawn.randrange(len(left)))
            reached.append(node)
            events.append(Event(time_ns, node, "join" if more > 0 else "fail"))
    return Trace(start, tuple(events), counts[-1][0])


def policy_of(policies: InstancePolicies, name: Name, trace: Trace) -> Policy:
    """The policy of that name; oobleck takes the fleet with the shortest step, as in its paper."""
    if name != "oobleck":
        return policies.of(name, trace)
    return policies.of("ours", trace, ENDLESS_NS)


def measured(
    instance: Instance,
    traces: Mapping[str, Trace],
    bandwidth: str | None,
    limit_s: float,
    svg: Path | None,
) -> list[dict[str, Any]]:
    """One record per trace and policy; plans and templates are made once."""
    search = SolveOptions(time_limit_s=limit_s, gap=GAP)
    policies = InstancePolicies(instance, PolicyOptions(search=search), None)
    records, runs = [], dict[str, dict[str, Replay]]()
    for name in POLICIES:
        for interval, trace in traces.items():
            start_s = time.perf_counter()
            run = replay(trace, policy_of(policies, name, trace))
            runs.setdefault(interval, {})[name] = run
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
                    "gap": GAP,
                    "seed": SEED,
                },
            }
            records.append(record("policies", figures))
            print(line(figures), flush=True)
    for interval, by_name in runs.items():
        if svg is not None:
            text = replay_picture(f"{instance.name}, {interval}", by_name)
            path = svg / f"policies_{instance.name}_{interval}.svg"
            path.write_text(text, encoding="utf-8")
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
    parser = command("policies", time_limit=600.0)
    parser.add_argument("instance", nargs="*", help="file, or name in instances/")
    parser.add_argument("--every", nargs="*", default=["6h", "1h", "10m"], help="intervals")
    parser.add_argument("--trace", nargs="*", default=[], choices=["ec2_p3", "gcp_a2"])
    parser.add_argument("--svg", type=Path, help="folder for a picture of each trace")
    parser.add_argument("--bandwidth", help="between all nodes, such as '10 Gbit/s'")
    chosen = parser.parse_args()
    names = chosen.instance or sorted(path.stem for path in INSTANCES.glob("oobleck_*.yaml"))
    for name in names:
        path = Path(name) if name.endswith(".yaml") else INSTANCES / f"{name}.yaml"
        instance = load_instance(path)
        if chosen.bandwidth:
            instance = with_bandwidth(instance, parse_quantity(chosen.bandwidth, "bandwidth"))
        nodes, traces = instance.cluster.node_names, dict[str, Trace]()
        for interval in chosen.every:
            interval_ns = length_ns(interval)
            assert interval_ns, interval
            traces[interval] = regular_trace(nodes, interval_ns, SEED)
        traces |= {trace: spot_trace(trace, nodes, SEED) for trace in chosen.trace}
        limit_s, bandwidth = chosen.time_limit, chosen.bandwidth
        append(chosen.out, measured(instance, traces, bandwidth, limit_s, chosen.svg))
