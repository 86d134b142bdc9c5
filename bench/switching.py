"""Switch plans of LLaMA-2 32B: their time beside the published rule's, their gap, and seconds.

    python -m bench switching [table3] [large]

`table3`: all pairs of the five strategies of HotSPa's table 3 (SOSP 2024) on 32 GPUs. `large`:
pairs on 1,024 GPUs, on equal nodes and on two kinds of nodes. Fails where the published rule is
quicker. Records go to bench/results/switching.jsonl.
"""

import sys
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import Any

from bench.command import command
from bench.records import INSTANCES, append, cpu_seconds, record
from formulations.instance import Cluster, Link, NodeGroup, Workload
from formulations.instance.load import load_instance
from formulations.switching.shards import Kind, Layout, Seat
from formulations.switching.switch import switch_of
from solver.result import relative_gap
from solver.switching.quickest import plan_switch

Degrees = tuple[int, int, int]  #: dp, tp, pp

TABLE_3: tuple[Degrees, ...] = ((1, 16, 2), (4, 2, 4), (2, 8, 2), (4, 4, 2), (8, 4, 1))
#: On 128 nodes: stages that divide each other, and stages that do not.
LARGE: tuple[tuple[Degrees, Degrees], ...] = (
    ((32, 8, 4), (128, 8, 1)),
    ((128, 8, 1), (32, 4, 8)),
    ((16, 8, 8), (64, 4, 4)),
    ((42, 8, 3), (25, 8, 5)),
    ((64, 4, 4), (18, 8, 7)),
    ((128, 4, 2), (14, 8, 9)),
)
#: Parameters split over 1,024 copies (ZeRO 3), and whole in every copy.
SPLIT: tuple[tuple[Degrees, Degrees], ...] = (
    ((1024, 1, 1), (128, 8, 1)),
    ((1024, 1, 1), (256, 4, 1)),
    ((1024, 1, 1), (32, 8, 4)),
)
KINDS: tuple[tuple[Kind, ...], ...] = (("parameters",), ("gradients",), ("parameters", "gradients"))


@cache
def llama_32b() -> Workload:
    """The model of HotSPa's table 3; a switch goes by its tensors alone."""
    return load_instance(INSTANCES / "llama2_32b_32_a800.yaml").workload


def nodes_of_8(number: int, gbit_per_s: float, name: str = "a800") -> NodeGroup:
    """Nodes of 8 GPUs with 200 GB/s among them, and so many Gbit/s out of a node."""
    known = load_instance(INSTANCES / "megatron_145b.yaml").cluster.groups[0]
    return NodeGroup(
        name=name,
        gpu=known.gpu,
        gpus_per_node=known.gpus_per_node,
        nodes=number,
        price_usd_per_hour=0,
        intra_node=Link(bandwidth_bytes_per_s=200e9, latency_s=2e-6),
        inter_node=Link(bandwidth_bytes_per_s=gbit_per_s * 1e9 / 8, latency_s=5e-6),
    )


def in_order(degrees: Degrees, zero: int = 1, ep: int = 1, layers: int = 62) -> Layout:
    """Megatron-LM's rank order over GPUs in order, blocks split evenly; groups may leave nodes."""
    dp, tp, pp = degrees
    cuts = [0, *(1 + (layers - 2) * k // pp for k in range(1, pp)), layers]
    seats = (
        Seat((cuts[k], cuts[k + 1]), tp, tuple(range((k * dp + r) * tp, (k * dp + r + 1) * tp)))
        for r in range(dp)
        for k in range(pp)
    )
    return Layout(tuple(seats), zero, ep)


def figures(
    cluster: Cluster, before: Degrees, after: Degrees, kinds: tuple[Kind, ...], zero: int = 1
) -> dict[str, Any]:
    """One switch, with its seconds; zero: of the plan before."""
    begin = cpu_seconds()
    switch = switch_of(cluster, llama_32b(), in_order(before, zero), in_order(after), kinds)
    found = plan_switch(switch)
    return {
        "before": before,
        "after": after,
        "moves": "+".join(kinds) + (f", ZeRO {zero} before" if zero > 1 else ""),
        "gpus": switch.network.num_gpus,
        "groups": len(cluster.groups),
        "classes": len(switch.classes),
        "time_ns": found.time_ns,
        "bound_ns": found.bound.time_ns,
        "gap": relative_gap(found.time_ns, found.bound.time_ns) or 0.0,
        "published_ns": found.published_ns,
        "cpu_s": round(cpu_seconds() - begin, 3),
    }


def table_3() -> Iterator[dict[str, Any]]:
    """All pairs on 4 nodes with eight adapters of 200 Gbit/s, for all moves."""
    cluster = Cluster(groups=(nodes_of_8(4, 1600),))
    for kinds in KINDS:
        for before, after in permutations(TABLE_3, 2):
            yield figures(cluster, before, after, kinds)


def large() -> Iterator[dict[str, Any]]:
    """Pairs on 128 nodes, then on as many of which half have links of a quarter."""
    alike = Cluster(groups=(nodes_of_8(128, 1600),))
    unlike = Cluster(groups=(nodes_of_8(64, 1600), nodes_of_8(64, 400, "slow")))
    for cluster in (alike, unlike):
        for before, after in LARGE:
            for kinds in KINDS[:2]:
                yield figures(cluster, before, after, kinds)
    for before, after in SPLIT:
        yield figures(alike, before, after, KINDS[0], 3)


def summary(rows: list[dict[str, Any]]) -> str:
    """Totals by what moves, on every cluster."""
    lines = []
    for key in dict.fromkeys((one["moves"], one["gpus"], one["groups"]) for one in rows):
        own = [one for one in rows if (one["moves"], one["gpus"], one["groups"]) == key]
        both = ("time_ns", "published_ns")
        ours_s, rule_s = (sum(one[name] for one in own) / 1e9 for name in both)
        lines.append(
            f"{key[0]:25} {key[1]:5} GPUs, {key[2]} groups, {len(own)} pairs: rule {rule_s:.3f} s,"
            f" ours {ours_s:.3f} s ({rule_s / ours_s:.2f} times), gap at most"
            f" {max(one['gap'] for one in own):.1e}, {max(one['cpu_s'] for one in own):.2f} s"
            f" of CPU at most, {max(one['classes'] for one in own)} classes"
        )
    return "\n".join(lines)


def main() -> None:
    """Runs the parts that are named, or both."""
    parts = {"table3": table_3, "large": large}
    parser = command("switching")
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="default: both")
    chosen = parser.parse_args()
    names = chosen.parts or list(parts)
    rows = [one for name in names for one in parts[name]()]
    append(chosen.out, [record("switching", one) for one in rows])
    print(summary(rows))
    if any(one["time_ns"] > one["published_ns"] for one in rows):
        sys.exit("the published rule is quicker")
