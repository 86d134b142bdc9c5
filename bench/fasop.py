"""FASOP's plans against ours: step times by one simulator, and the seconds of our search.

    python -m bench fasop [CASE ...] [--repeats N] [--gap G] [--time-limit S] [--workers N]

Two runs of ours: "full", `python cli.py solve` as a process of its own in the whole plan space of
the instance, and "theirs", the same search in FASOP's smaller plan space. FASOP's plans are those
of the reference folder; its seconds, of another day, are compared with nothing. Records go to
bench/results/fasop.jsonl. Exit status 1 if a plan of theirs that is in our plan space is faster
than ours or than our bound.

plans.json of the reference (FASOP, HPDC 2024, public code) has, per cluster and model, the best
five plans of its search, and the best five within its own memory estimate. A plan is a node order,
degrees, micro-batch size and numbers of layers; ranks are laid out as in Megatron-LM. It recomputes
nothing, shards no optimizer, uses all nodes, and schedules 1F1B.
"""

import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
from rich.table import Table

from bench.command import Column, command, config_of, figure_table, search_options, wide_console
from bench.gap import measure
from bench.records import INSTANCES, ROOT, append, json_of, record, reference
from bench.searches import Figures, apart
from bench.start import timed
from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.instance.search import RECOMPUTE_WAYS
from formulations.plan import Configuration, Plan, uniform_degrees
from formulations.space import configs
from formulations.units import GIB, seconds
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import plan_of
from solver.simulate import step_time_ns

#: Name in plans.json: our instance of the same cluster, model and profile.
CASES = {
    "bert_homo": "homo_small",
    "bert_hetero": "hetero_small",
    "gpt2XL_homo": "homo_large_gpt2xl",
    "gpt2XL_hetero": "hetero_large_gpt2xl",
}
#: Its node types by our node groups.
GROUPS = {"A100 node": "a100", "A10 node": "a10"}


@dataclass(frozen=True)
class Judgement:
    """A plan by our simulator, all transfers between stages charged.

    outside: why no plan of the instance's plan space is like this; empty if it is one.
    """

    config: Configuration
    partition: tuple[int, ...]
    step_time_ns: int
    outside: tuple[str, ...]


def read_published(reference: Path, case: str) -> tuple[dict[str, Any], ...]:
    """Different plans of a case as they stand there; InstanceError without the reference file."""
    path = reference / "fasop" / "plans.json"
    try:
        found = json_of(path)[case]
    except OSError as error:
        allowed = "the reference folder, named by HETPLAN_REFERENCE"
        raise InstanceError(str(path), str(error.strerror), allowed) from None
    plans = {json.dumps(plan): plan for plan in [*found["best5_within_memory"], *found["best5"]]}
    return tuple(plans.values())


def read_plan(instance: Instance, entry: dict[str, Any]) -> Plan:
    """A plan of the file, on the instance's nodes."""
    names = [group.name for group in instance.cluster.groups]
    order = [names.index(GROUPS[node]) for node in entry["placement"]]
    config = Configuration(
        degrees=uniform_degrees(instance, entry["tp"]),
        dp=entry["dp"],
        pp=entry["pp"],
        micro_batch=entry["mbs"],
        schedule="1f1b",
        recompute=tuple(way for way in RECOMPUTE_WAYS if way in instance.search.recompute),
        zero=0,
        nodes_used=tuple(order.count(j) for j in range(len(names))),
    )
    boundaries = tuple(accumulate(entry["partition"], initial=0))
    counts = [entry["num_microbatches"]] * config.dp
    return Decisions(tuple(order), boundaries, tuple(counts)).plan(build_tables(instance, config))


def _outside(instance: Instance, plan: Plan, costs: PlanCosts) -> list[str]:
    reasons = []
    if plan.config not in set(configs(instance)):
        reasons.append("configuration not in the plan space")
    blocks = [layer.is_block for layer in instance.workload.layers]
    ends = [stage.layers for stage in plan.replicas[0].stages]
    bare = [k for k, (begin, end) in enumerate(ends) if not any(blocks[begin:end])]
    if bare and not instance.search.embedding_only_stages:
        reasons.append(f"no block on stage {bare[0]}")
    over = costs.memory_bytes - costs.limit_bytes
    if over.max() > 0:
        k, r = np.unravel_index(int(over.argmax()), over.shape)
        need, limit = costs.memory_bytes[k, r] / GIB, costs.limit_bytes[k, r] / GIB
        reasons.append(f"memory of stage {k}: {need:.1f} of {limit:.1f} GiB")
    return reasons


def judge(instance: Instance, plan: Plan) -> Judgement:
    """Step time of a plan by the simulator, and what keeps it out of the plan space."""
    costs = plan_costs(instance, plan)
    ends = (0, *(stage.layers[1] for stage in plan.replicas[0].stages))
    partition = tuple(end - begin for begin, end in pairwise(ends))
    outside = tuple(_outside(instance, plan, costs))
    return Judgement(plan.config, partition, step_time_ns(costs), outside)


def their_space(instance: Instance) -> Instance:
    """The instance with the plan space of FASOP: all nodes, no recomputation, no ZeRO."""
    narrow = {"recompute": ("none",), "zero": (0,), "idle_nodes": False}
    return instance.but(search=narrow)


def _no_plan(instance: str) -> InstanceError:
    return InstanceError(
        "--time-limit", f"no plan of {instance}", "a limit that leaves time for one"
    )


def run_process(instance: str, options: SolveOptions) -> Figures:
    """One `solve` of a stored instance as a process: its seconds, result and plan.

    The step time is that of the plan file, judged again as FASOP's plans are. The CPU seconds of
    the search, which other work on the machine hardly changes, are those of a second one.
    """
    path = INSTANCES / f"{instance}.yaml"
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        words = [sys.executable, "cli.py", "solve", str(path.relative_to(ROOT)), "--out", str(plan)]
        words += ["--gap", str(options.gap), "--time-limit", str(options.time_limit_s)]
        words += ["--workers", str(options.workers)]
        figures, _ = timed(words)
        if figures["exit_code"]:
            raise _no_plan(instance)
        document = PlanDocument.read(plan)
    judged = judge(document.instance, plan_of(document))
    if judged.outside:
        raise RuntimeError(f"{instance}: our own plan is no plan: {', '.join(judged.outside)}")
    return {
        "space": "full",
        "status": document.status,
        "step_time_s": seconds(judged.step_time_ns),
        "bound_s": document.lower_bound_s,
        "search_s": document.runtime_s,
        "search_cpu_s": apart(measure, document.instance, "exact", options)["cpu_s"],
        "process_s": figures["wall_s"],
        "process_cpu_s": figures["cpu_s"],
        "shape": judged.config.model_dump(mode="json"),
        "partition": judged.partition,
    }


def run_theirs(instance: str, options: SolveOptions) -> Figures:
    """One search in FASOP's plan space."""
    narrow = their_space(load_instance(INSTANCES / f"{instance}.yaml"))
    found = apart(measure, narrow, "exact", options)
    if found["step_time_ns"] is None:
        raise _no_plan(instance)
    return {
        "space": "theirs",
        "status": found["status"],
        "step_time_s": seconds(found["step_time_ns"]),
        "bound_s": seconds(found["bound"]),
        "search_s": found["runtime_s"],
        "search_cpu_s": found["cpu_s"],
        "shape": found["shape"],
    }


def searches(case: str, repeats: int, options: SolveOptions) -> list[Figures]:
    """One record per run of ours."""
    runs = [run(CASES[case], options) for run in (run_process, run_theirs) for _ in range(repeats)]
    head = {"kind": "search", "case": case, "instance": CASES[case], "options": asdict(options)}
    load = {"load_average": os.getloadavg()[0]}
    return [record("fasop", head | load | one) for one in runs]


def plans(case: str, ours: Figures, folder: Path) -> list[Figures]:
    """One record per plan of FASOP, held against a run of ours in the full space."""
    instance = load_instance(INSTANCES / f"{CASES[case]}.yaml")
    records = []
    for entry in read_published(folder, case):
        judged = judge(instance, read_plan(instance, entry))
        step_s = seconds(judged.step_time_ns)
        figures = {
            "kind": "plan",
            "case": case,
            "instance": CASES[case],
            "placement": entry["placement"],
            "shape": judged.config.model_dump(mode="json"),
            "partition": judged.partition,
            "published_step_time_s": entry["step_time_s"],
            "step_time_s": step_s,
            "outside": judged.outside,
            "above_ours": step_s / ours["step_time_s"] - 1,
            "above_bound": step_s / ours["bound_s"] - 1,
        }
        records.append(record("fasop", figures))
    return records


def search_table(records: list[Figures]) -> Table:
    """One line per case and space: the fastest of our runs."""
    columns: dict[str, Column] = {
        "case": "case",
        "space": "space",
        "status": "status",
        "step ms": ("step_time_s", 1000, 3),
        "gap %": (lambda one: 1 - one["bound_s"] / one["step_time_s"], 100, 3),
        "search s": ("search_s", 1, 3),
        "its cpu s": ("search_cpu_s", 1, 3),
        "process s": ("process_s", 1, 2),
    }
    searches = [one for one in records if one["kind"] == "search"]
    rows = []
    for case, space in dict.fromkeys((one["case"], one["space"]) for one in searches):
        runs = [one for one in searches if (one["case"], one["space"]) == (case, space)]
        times = ("search_s", "search_cpu_s", "process_s")
        least = {name: min(one[name] for one in runs) for name in times if name in runs[0]}
        rows.append(runs[0] | least)
    return figure_table(rows, columns)


PLANS: dict[str, Column] = {
    "case": "case",
    "tensor x data x pipeline, micro-batch": config_of,
    "order": lambda one: "".join("H" if n.startswith("A100") else "." for n in one["placement"]),
    "split": lambda one: shorten(" ".join(map(str, one["partition"])), 20, placeholder="..."),
    "FASOP ms": ("published_step_time_s", 1000, 1),
    "simulated ms": ("step_time_s", 1000, 1),
    "above ours %": ("above_ours", 100, 2),
    "outside our plan space": lambda one: "; ".join(one["outside"]),
}


def contradictions(records: list[Figures]) -> list[str]:
    """Plans of theirs within our plan space that are faster than ours or than our bound."""
    return [
        f"{one['case']}: a plan of FASOP's takes {one['step_time_s']} s, "
        f"{one['above_ours']:+.2e} of ours, {one['above_bound']:+.2e} of our bound"
        for one in records
        if one["kind"] == "plan"
        and not one["outside"]
        and min(one["above_ours"], one["above_bound"]) < 0
    ]


def main() -> None:
    """Runs the comparison; records are stored after every case."""
    parser = command("fasop", repeats=3, gap=0.0, time_limit=300.0, workers=2)
    parser.add_argument("case", nargs="*", choices=[[], *CASES], help="default: all")
    chosen = parser.parse_args()
    folder = reference("fasop/plans.json")
    options = search_options(chosen)
    console = wide_console(140)
    records: list[Figures] = []
    try:
        for case in chosen.case or CASES:
            console.print(f"{case} ...")
            found = searches(case, chosen.repeats, options)
            found += plans(case, found[0], folder)
            append(chosen.out, found)
            records += found
    except InstanceError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    console.print(search_table(records))
    console.print("H: node of A100, .: node of A10")
    console.print(figure_table([one for one in records if one["kind"] == "plan"], PLANS))
    if wrong := contradictions(records):
        sys.exit("\n".join(wrong))
