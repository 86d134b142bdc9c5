"""Findings of FASOP and Oobleck, judged by the latest stored records of other benchmarks.

FASOP: Hwang et al., HPDC 2024, doi 10.1145/3625549.3658687. Oobleck: Jang et al., SOSP 2023, doi
10.1145/3600006.3613152.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.claims import Values
from bench.records import stored
from bench.replay import TOLERANCES

FASOP, OOBLECK = "FASOP, HPDC 2024", "Oobleck, SOSP 2023"
#: How far throughputs of table 2 may be off: Oobleck's by less than `bench.replay` asks.
NEAR_TABLE_2 = {name: share for name, (share, _) in TOLERANCES.items()} | {"oobleck": 0.0001}


@dataclass(frozen=True)
class Recorded:
    """One finding. parts: what must hold, and whether it does; note: why some do not."""

    name: str
    claim: str
    source: str
    axis: str
    values: Values
    parts: Mapping[str, bool]
    note: str


Record = dict[str, Any]


def latest(folder: Path, benchmark: str, *fields: str) -> dict[tuple[Any, ...], Record]:
    """The last stored record of every value of the fields, lists as tuples."""
    return {
        tuple(
            tuple(at) if isinstance(at := record.get(name), list) else at for name in fields
        ): record
        for record in stored(folder / f"{benchmark}.jsonl")
    }


def fastest_plan(folder: Path) -> Recorded:
    """FASOP's plans of its four cases beside the proved optimum of its plan space."""
    plans = latest(folder, "fasop", "kind", "case", "space", "partition", "placement")
    theirs, ours = dict[str, list[float]](), dict[str, float]()
    for (kind, case, space, *_), record in plans.items():
        if kind == "plan":
            theirs.setdefault(case, []).append(record["step_time_s"])
        elif space == "theirs":
            ours[case] = record["step_time_s"]
    above = {case: 100 * (min(steps) / ours[case] - 1) for case, steps in sorted(theirs.items())}
    return Recorded(
        "FASOP's best plans",
        "its search finds the fastest plan of homogeneous and heterogeneous clusters",
        f"{FASOP}, abstract; plans of its public code",
        "% above the proved optimum of its plan space, its best of five",
        {"best of five": above},
        {f"{case}: within 0.1 %": excess <= 0.1 for case, excess in above.items()},
        "its five plans of a cluster are chosen by its estimate of the step; all are judged by our"
        " simulator, with its own layer times",
    )


def min_max(folder: Path) -> Recorded:
    """Its splits beside those of dynamic programming."""
    (record,) = latest(folder, "study").values()
    shares = {
        "largest stage least": record["largest_stage"]["optimal"],
        "step shortest": record["summary"]["min-max as intended"]["optimal"],
        "step shortest, by DP": record["summary"]["exact min-max"]["optimal"],
    }
    percent = {name: 100 * share for name, share in shares.items()}
    return Recorded(
        "min-max splits",
        "min-max splits are as good as those of dynamic programming",
        f"{FASOP}, section 3",
        f"% of {record['largest_stage']['cases']:,} cases",
        {"min-max": percent},
        {
            "as a rule": percent["largest stage least"] > 80,
            "always": percent["largest stage least"] == 100,
        },
        "in one case of ten the largest stage is longer than it must be, at worst by"
        f" {100 * record['largest_stage']['worst']:.0f} %; and the least largest stage is not the"
        " shortest step",
    )


def pareto(folder: Path) -> Recorded:
    """Its front over 80 clusters beside ours."""
    plans = latest(folder, "pareto", "kind", "nodes")
    front = {nodes: plan for (kind, nodes), plan in plans.items() if plan.get("on_their_front")}
    behind = {"+".join(map(str, n)): 100 * plan["behind"] for n, plan in front.items()}
    beaten = {nodes: plan["better"] for nodes, plan in front.items() if [*nodes] != plan["better"]}
    by = ", ".join(f"{a} + {b} nodes by {c} + {d}" for (a, b), (c, d) in beaten.items())
    return Recorded(
        "Pareto front",
        "its plans for GPT-2 XL on up to 8 A100 and 8 A10 nodes are the front of time and cost",
        f"{FASOP}, section 5; front of its public code",
        "% behind our front in both time and cost, by nodes of A100 + A10",
        {"its plans": behind},
        {
            "no plan of its is ahead of ours": min(behind.values()) >= 0,
            "its clusters are on our front": not beaten,
        },
        f"{len(front) - len(beaten)} of its {len(front)} clusters are on our front; dominated are"
        f" {by}. Its plans are {min(behind.values()):.1f} to {max(behind.values()):.1f} % behind",
    )


def policies(folder: Path) -> Recorded:
    """Table 2, with its inputs and our player."""
    rows = latest(folder, "replay", "model", "interval", "policy")
    values, errors = Values(), dict[str, dict[str, float]]()
    for (model, interval, policy), row in rows.items():
        ratio = row["replayed"] / row["paper"]
        values.setdefault(policy, {})[f"{model} {interval}"] = ratio
        # Of 2.7B and 6.7B every 10 minutes Varuna trains six steps and one in the paper, or fewer
        few = policy == "varuna" and row["paper"] < 1
        kind = f"{policy}, a few steps" if few else policy
        errors.setdefault(kind, {})[f"{model} {interval}"] = abs(ratio - 1)
    near = {kind: NEAR_TABLE_2[kind.partition(",")[0]] for kind in errors}
    return Recorded(
        "table 2",
        "throughput of five models under three policies of recovery and three rates of failures",
        f"{OOBLECK}, table 2",
        "ours over the paper's, by model and interval of failures",
        values,
        {
            f"{kind}, within {100 * near[kind]:g} %": max(found.values()) <= near[kind]
            for kind, found in errors.items()
        },
        "under Varuna GPT-3 trains no or few steps in 2.5 h every 10 minutes; which few the paper"
        " kept is not known. What Bamboo restarts and when is in no input of it",
    )


def planner(folder: Path) -> Recorded:
    """Table 3."""
    rows = {
        key[1:]: row
        for key, row in latest(
            folder, "templates", "part", "layers", "nodes", "gpus_per_node"
        ).items()
        if key[0] == "latency"
    }
    names = {key: " x ".join(map(str, key)) for key in rows}
    series = {"ours": "oobleck_s", "published, its machines": "paper_s"}
    return Recorded(
        "table 3",
        "templates of all sizes are planned before training starts, in an hour at most",
        f"{OOBLECK}, table 3",
        "s for all sizes, by layers x nodes x GPUs per node",
        {
            name: {names[key]: row[field] for key, row in rows.items()}
            for name, field in series.items()
        },
        {"in an hour": max(row["oobleck_s"] for row in rows.values()) < 3600},
        "its objective, T1 + T2 + T3, on one process; simulated steps take up to"
        f" {max(row['step_time_s'] for row in rows.values()):.0f} s, all proved",
    )


def claims(folder: Path) -> list[Recorded]:
    """All that the records of a folder hold."""
    return [judge(folder) for judge in (fastest_plan, min_max, pareto, policies, planner)]
