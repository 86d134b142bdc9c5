"""Fleets of 30 to 1,000 nodes: seconds to form the first one and to recover from two failures.

    python -m bench fleets [CASE ...] [--faults F] [--time-limit S]

For every file in bench/fleets: templates of all sizes; the pipelines and micro-batches that are
best for all nodes (`start_s`; what 1,000 nodes may take is 10 s); the same as a MILP by HiGHS, with
the found choice as its start and its bound as a second opinion; then the first nodes of the first
two pipelines fail (`recover_s`). Fails if HiGHS knows a shorter step, or a fleet does not verify.
Records go to bench/results/fleets.jsonl.
"""

import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.command import command
from bench.instantiation import InstantiationModel
from bench.records import ROOT, append, record
from formulations.instance.load import load_instance
from formulations.models.milp import Milp
from formulations.pipelines import Instantiation, InstantiationProblem
from solver.backends import highs
from solver.fleet_document import FleetDocument
from solver.fleets.designs import generator_for, templates_document
from solver.fleets.fleet import next_fleet, start_fleet
from solver.fleets.recovery import Horizon
from solver.fleets.step_times import kinds_of
from solver.options import SolveOptions
from solver.templates.generate import TemplateOptions
from solver.verify import verify_fleet

CASES = ROOT / "bench" / "fleets"
HOUR = Horizon(3600 * 10**9)


def choice_of(fleet: FleetDocument) -> Instantiation:
    """Shares per design."""
    return Instantiation(
        tuple(
            tuple(sorted((p.micro_batches for p in fleet.pipelines if p.design == i), reverse=True))
            for i in range(len(fleet.designs))
        )
    )


def second_opinion(fleet: FleetDocument, time_limit_s: float) -> dict[str, Any]:
    """What HiGHS says of the fleet's step, ns and seconds."""
    kinds = kinds_of(fleet.instance, fleet.designs)
    problem = InstantiationProblem(
        kinds, fleet.nodes_left, fleet.faults, fleet.micro_batches, all_nodes=False
    )
    choice = choice_of(fleet)
    start_s = time.perf_counter()
    built = InstantiationModel(Milp(), problem, choice.step_ns(problem))
    built.hint(choice)
    outcome = highs.run(built.model.native, SolveOptions(time_limit_s=time_limit_s))
    return {
        "step_ns": choice.step_ns(problem),
        "milp_s": time.perf_counter() - start_s,
        "milp_status": outcome.status.value,
        "milp_step_ns": outcome.objective,
        "milp_bound_ns": outcome.bound,
    }


def measured(path: Path, faults: int, time_limit_s: float) -> dict[str, Any]:
    """Figures of one file."""
    instance = load_instance(path)
    times = [time.perf_counter()]
    templates = templates_document(generator_for(instance, TemplateOptions(), faults), faults)
    times.append(time.perf_counter())
    fleet = start_fleet(instance, templates.designs, faults, claims=templates.claims)
    times.append(time.perf_counter())
    lost = [pipeline.nodes[0] for pipeline in fleet.pipelines[:2]]
    after = next_fleet(fleet, lost, [], HOUR)
    times.append(time.perf_counter())
    assert after.recovery is not None
    seconds = [end - start for start, end in pairwise(times)]
    verified = not (verify_fleet(fleet).problems or verify_fleet(after).problems)
    return {
        "case": path.stem,
        "faults": faults,
        "nodes": len(instance.cluster.node_names),
        "sizes": list(templates.sizes),
        "micro_batches": sum(one.micro_batches for one in fleet.pipelines),
        "pipelines": len(fleet.pipelines),
        "idle": len(fleet.idle),
        "templates_s": seconds[0],
        "start_s": seconds[1],
        "recover_s": seconds[2],
        "recover_gap": 1 - after.recovery.steps / after.recovery.steps_bound,
        "copies": len(after.recovery.copies),
        "transfer_s": after.recovery.transfer_s,
        "verified": verified,
        **second_opinion(fleet, time_limit_s),
    }


def line(figures: dict[str, Any]) -> str:
    """One case in words."""
    return (
        f"{figures['case']}: templates {figures['templates_s']:.2f} s, "
        f"{figures['pipelines']} pipelines in {figures['start_s']:.2f} s "
        f"(HiGHS {figures['milp_status']} in {figures['milp_s']:.2f} s), two failures "
        f"{figures['recover_s']:.2f} s, gap {100 * figures['recover_gap']:.2g} %, "
        f"{figures['copies']} copies in {figures['transfer_s']:.2f} s"
    )


def contradicted(figures: dict[str, Any]) -> bool:
    """Whether the verifier refused a fleet, or HiGHS found a shorter step."""
    shorter = figures["milp_step_ns"] is not None and figures["milp_step_ns"] < figures["step_ns"]
    return shorter or not figures["verified"]


def main() -> None:
    """Runs the files named, or all."""
    parser = command("fleets", time_limit=60.0)
    parser.add_argument("cases", nargs="*", help="names of files in bench/fleets")
    parser.add_argument("--faults", type=int, default=2)
    chosen = parser.parse_args()
    names = chosen.cases or sorted(path.stem for path in CASES.glob("*.yaml"))
    failed = False
    for name in names:
        figures = measured(CASES / f"{name}.yaml", chosen.faults, chosen.time_limit)
        print(line(figures), flush=True)
        append(chosen.out, [record("fleets", figures)])
        failed |= contradicted(figures)
    sys.exit(int(failed))
