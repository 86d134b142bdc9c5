"""Mixed clusters with the layer times of Sailor: its even splits beside our proved optimum.

    python -m bench sailor [INSTANCE ...] [--time-limit S] [--gap G]

Sailor (SOSP 2025) splits layers evenly among stages, whatever GPUs they lie on. `even` is the best
plan with such splits over the same shapes and node orders, by our simulator; `ours` the optimum of
that plan space, and `verify` repeats its proof. The instances, bench/sailor, hold measured layer
times. Fails if an even split is below our bound, or the verifier objects. Records go to
bench/results/sailor.jsonl.
"""

import argparse
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import hetplan
from bench.records import RESULTS, ROOT, append, cpu_seconds, record
from formulations.costs.tables import CostTables
from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.units import seconds
from solver.heuristics.baselines import Found
from solver.heuristics.choose import best_plan
from solver.heuristics.stages import OrderStages, Split, least_ends
from solver.search.shapes import shapes

CASES = ROOT / "bench" / "sailor"
NAMES = ("opt_16_32", "opt_32_96", "neo_16_32", "neo_32_96")


def sailor_split(tables: CostTables) -> Split | None:
    """Equal numbers of layers, the r left over on the last r stages; None if a stage has no block.

    Sailor's public code, sailor/Planner/sailor_planner/cpp_src/planner_utils.cpp, get_stages.
    """
    stages = tables.shape.num_stages
    each, left_over = divmod(tables.num_layers, stages)
    ends = [k * each + max(0, k - (stages - left_over)) for k in range(stages + 1)]
    least = least_ends(tables)
    met = all(least[start] <= end for start, end in pairwise(ends))
    return tuple(ends) if met else None


def even_plan(instance: Instance) -> Found:
    """The best of Sailor's splits that fit, over all shapes and node orders."""

    def rule(costs: OrderStages) -> Split | None:
        split = sailor_split(costs.tables)
        return split if split and costs.fits(split) else None

    return best_plan(instance, shapes(instance), rule)


def measured(path: Path, limit_s: float, gap: float) -> dict[str, Any]:
    """Both plans of one instance."""
    instance = load_instance(path)
    even, begun = even_plan(instance), cpu_seconds()
    solution = hetplan.solve(instance, time_limit_s=limit_s, gap=gap)
    solved = cpu_seconds()
    checked = hetplan.verify(solution, instance)
    shape = solution.document.shape
    return {
        "instance": path.stem,
        "options": {"time_limit_s": limit_s, "gap": gap},
        "even_s": even and seconds(even[1]),
        "even_shape": even and even[0].shape.model_dump(mode="json"),
        "ours_s": solution.step_time_s,
        "ours_shape": shape and shape.model_dump(mode="json"),
        "status": solution.status,
        "bound_s": solution.lower_bound_s,
        "gap": solution.gap,
        "cpu_s": solved - begun,
        "verify_cpu_s": cpu_seconds() - solved,
        "problems": list(checked.problems),
        "proof_repeated": checked.complete,
    }


def line(figures: dict[str, Any]) -> str:
    """One instance in words."""
    even, ours, shape = figures["even_s"], figures["ours_s"], figures["ours_shape"]
    if even is None or ours is None:
        return f"{figures['instance']}: even {even}, ours {ours}, {figures['status']}"
    return (
        f"{figures['instance']}: even split {even:.4f} s, ours {ours:.4f} s "
        f"({100 * (even / ours - 1):+.1f} %), pp {figures['even_shape']['pp']} and {shape['pp']}, "
        f"{figures['status']}, gap {100 * figures['gap']:.2g} %, {figures['cpu_s']:.1f} s CPU; "
        + ("verified" if figures["proof_repeated"] else "proof not repeated")
    )


def contradicted(figures: dict[str, Any]) -> bool:
    """Whether an even split is below our bound, or the verifier found a problem."""
    below = figures["even_s"] is not None and figures["even_s"] < figures["bound_s"]
    return below or bool(figures["problems"])


def main() -> None:
    """Runs the instances named, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench sailor")
    parser.add_argument("instance", nargs="*", default=NAMES, help="names in bench/sailor")
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds per instance")
    parser.add_argument("--gap", type=float, default=1e-4)
    chosen = parser.parse_args()
    failed = False
    for name in chosen.instance:
        figures = measured(CASES / f"{name}.yaml", chosen.time_limit, chosen.gap)
        print(line(figures), flush=True)
        append(RESULTS / "sailor.jsonl", [record("sailor", figures)])
        failed |= contradicted(figures)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
