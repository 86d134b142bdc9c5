"""Fronts over families of clusters, and FASOP's best plans of 80 clusters beside ours.

    python -m bench pareto [CASE ...] [--time-limit S] [--workers N] [--out RECORDS]

Every case is searched once, to its own gap. FASOP's plans (pareto_gpt2xl.json of the reference) are
judged by our simulator on the same instance: how far each lies behind our front is the least
factor, less one, by which some point is better in both step time and cost. Records go to
bench/results/pareto.jsonl, the picture with FASOP's plans to pareto_gpt2xl.svg beside it. Exit
status 1 if one of them lies beyond our front, or a front takes more CPU seconds, which other work
on the machine hardly changes, than it may take on a machine of its own.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.command import (
    Column,
    all_cores,
    command,
    config_of,
    figure_table,
    wide_console,
)
from bench.fasop import judge, read_plan
from bench.records import (
    INSTANCES,
    ROOT,
    append,
    cpu_seconds,
    json_of,
    peak_rss_bytes,
    record,
    reference,
)
from formulations.costs.renting import worthwhile_terms
from formulations.instance.load import load_family
from formulations.units import seconds
from solver.clusters.front import Measure
from solver.clusters.search import FamilySearch, outcome
from solver.front_document import FrontDocument
from solver.options import SolveOptions
from solver.report.front import Figures as Money
from solver.report.front import cluster_name, figures_of
from solver.report.front_picture import Mark, front_picture

Figures = dict[str, Any]
#: FASOP's nodes in pareto_gpt2xl.json by their names in plans.json.
NODES = {"A": "A100 node", "B": "A10 node"}
FASOP_CASE = "aws_gpt2xl"


@dataclass(frozen=True)
class Case:
    """A family, the gap to which its front is proved, and the CPU seconds it may take."""

    path: Path
    gap: float
    most_s: float


CASES = {
    "aws_bert": Case(INSTANCES / "aws_bert.yaml", 0.001, 60),
    FASOP_CASE: Case(INSTANCES / "aws_gpt2xl.yaml", 0.001, 300),
    "three_types_16": Case(ROOT / "bench" / "clusters" / "three_types_16.yaml", 0.005, 600),
}


def run(name: str, time_limit_s: float | None, workers: int) -> tuple[FrontDocument, Figures]:
    """The front of a case, and the record of its search."""
    case, begun = CASES[name], cpu_seconds()
    family = load_family(case.path)
    options = SolveOptions(
        gap=case.gap, workers=workers, time_limit_s=time_limit_s or 2 * case.most_s
    )
    search = FamilySearch(family, Measure(family), options)
    document = outcome(search, search.run())
    count = Counter((one.standing, one.closed_by) for one in document.clusters)
    by_bounds = sum(n for (one, by), n in count.items() if one != "open" and by == "bounds")
    front = [
        [*one.nodes, one.plan.step_time_s, one.terms[0].cost_usd_per_step]
        for one in document.points
    ]
    figures = {
        "kind": "front",
        "case": name,
        "gap": case.gap,
        "workers": workers,
        "termination": document.termination,
        "clusters": len(document.clusters),
        "points": len(document.points),
        "open": document.num_open,
        "searched": len(search.closed),
        "closed_by_bounds": by_bounds,
        "runtime_s": document.runtime_s,
        "cpu_s": cpu_seconds() - begun,
        "peak_rss_bytes": peak_rss_bytes(),
        "front": front,
    }
    return document, record("pareto", figures)


def published(folder: Path, document: FrontDocument) -> list[Figures]:
    """One record per plan of FASOP's, judged on our instance and held against our front."""
    path = folder / "fasop" / "pareto_gpt2xl.json"
    found = json_of(path)
    front = {tuple(nodes) for nodes in found["front"]}
    return [judged(document, one, front) for one in found["best"]]


def _figures(document: FrontDocument, nodes: Sequence[int], step_s: float) -> Money:
    """Of a cluster on demand."""
    (terms,) = worthwhile_terms(document.family.instance, nodes)
    return figures_of(document, terms, step_s)


def judged(document: FrontDocument, one: Figures, front: set[tuple[int, ...]]) -> Figures:
    """The record of one of them; `front`: clusters on FASOP's own."""
    instance = document.family.instance
    entry = {
        "placement": [NODES[node] for node in one["node_order"]],
        "mbs": one["micro_batch"],
        "num_microbatches": instance.workload.global_batch // (one["dp"] * one["micro_batch"]),
        **{name: one[name] for name in ("tp", "dp", "pp", "partition")},
    }
    nodes = (one["num_a100_nodes"], one["num_a10_nodes"])
    ours = judge(instance, read_plan(instance, entry))
    step_s = seconds(ours.step_time_ns)
    own = _figures(document, nodes, step_s)
    points = [
        (point, _figures(document, point.nodes, point.plan.step_time_s or step_s))
        for point in document.points
    ]
    factors = [
        (min(theirs.throughput / own.throughput, own.paid / theirs.paid), point.nodes)
        for point, theirs in points
    ]
    factor, better = max(factors)
    figures = {
        "kind": "plan",
        "nodes": nodes,
        "on_their_front": nodes in front,
        "shape": {name: one[name] for name in ("tp", "dp", "pp", "micro_batch")},
        "published_step_time_s": one["step_time_s"],
        "step_time_s": step_s,
        "training_cost_usd": own.paid,
        "behind": factor - 1,
        "better": better,
        "outside": ours.outside,
    }
    return record("pareto", figures)


FRONTS: dict[str, Column] = {
    "family": "case",
    "ended": "termination",
    "clusters": ("clusters", 1, 0),
    "gap %": ("gap", 100, 1),
    "points": ("points", 1, 0),
    "searched": ("searched", 1, 0),
    "by bounds %": (lambda one: one["closed_by_bounds"] / one["clusters"], 100, 1),
    "seconds": ("runtime_s", 1, 1),
    "CPU s": ("cpu_s", 1, 1),
}


def plan_table(document: FrontDocument, plans: list[Figures]) -> Table:
    """One line per plan of FASOP's, in its order."""
    columns: dict[str, Column] = {
        "cluster": lambda one: cluster_name(document, one["nodes"]),
        "tensor x data x pipeline, micro-batch": config_of,
        "its front": lambda one: "yes" if one["on_their_front"] else "",
        "FASOP ms": ("published_step_time_s", 1000, 1),
        "simulated ms": ("step_time_s", 1000, 1),
        "USD": ("training_cost_usd", 1, 0),
        "behind %": ("behind", 100, 2),
        "better": lambda one: cluster_name(document, one["better"]),
        "outside our plan space": lambda one: "; ".join(one["outside"]),
    }
    return figure_table(plans, columns)


def marks(document: FrontDocument, plans: list[Figures]) -> list[Mark]:
    """FASOP's plans in our picture."""
    return [
        Mark(
            "theirs",
            _figures(document, plan["nodes"], plan["step_time_s"]),
            cluster_name(document, plan["nodes"]),
        )
        for plan in plans
    ]


def faults(fronts: list[Figures], plans: list[Figures]) -> list[str]:
    """Fronts that took too long or are not closed, plans beyond ours."""
    late = [
        f"{one['case']}: {one['cpu_s']:.0f} CPU s, {one['open']} open; at most {most:.0f} s"
        for one in fronts
        if one["cpu_s"] > (most := CASES[one["case"]].most_s) or one["open"]
    ]
    beyond = [
        f"a plan of FASOP's on {one['nodes']} lies beyond our front, {-one['behind']:.2e}"
        for one in plans
        if not one["outside"] and one["behind"] < -CASES[FASOP_CASE].gap
    ]
    return late + beyond


def main() -> None:
    """Runs the benchmark; records are stored after every case."""
    parser = command("pareto", time_limit=None, workers=all_cores())
    parser.add_argument("case", nargs="*", choices=[[], *CASES], help="default: all")
    chosen = parser.parse_args()
    folder = reference("fasop/pareto_gpt2xl.json")
    console = wide_console(150)
    fronts: list[Figures] = []
    plans: list[Figures] = []
    for name in chosen.case or CASES:
        document, found = run(name, chosen.time_limit, chosen.workers)
        fronts.append(found)
        append(chosen.out, [found])
        if name == FASOP_CASE:
            plans = published(folder, document)
            append(chosen.out, plans)
            theirs = "FASOP's best plans, our times"
            picture = front_picture(document, marks(document, plans), theirs)
            chosen.out.with_name("pareto_gpt2xl.svg").write_text(picture, encoding="utf-8")
            console.print(plan_table(document, plans))
    console.print(figure_table(fronts, FRONTS))
    if wrong := faults(fronts, plans):
        sys.exit("\n".join(wrong))
