"""Mixed clusters with the layer times of Sailor: its even splits beside our proved optimum.

    python -m bench sailor [INSTANCE ...] [--time-limit S] [--gap G]

Sailor (SOSP 2025) splits layers evenly among stages, whatever GPUs they lie on, and chooses tensor
degrees per GPU type. `even` is the best plan with such splits over all configurations and node
orders, by our simulator; `ours` the optimum of the same plan space, and `verify` repeats its proof.
Both with one degree for all (`uniform`) and with one per GPU type (`per_type`, emulated by
`super_gpus`: the best over all pairs of degrees). The instances, bench/sailor, hold measured
layer times. Fails if an even split is below our bound, or the verifier objects. Records go to
bench/results/sailor.jsonl.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from math import inf
from pathlib import Path
from typing import Any

import hetplan
from bench.command import command
from bench.records import ROOT, append, cpu_seconds, record
from formulations.costs.tables import CostTables
from formulations.decisions import least_ends
from formulations.instance import Instance, Workload
from formulations.instance.load import load_instance
from formulations.instance.node_group import NodeGroup
from formulations.instance.profile import Profile
from formulations.space import configs
from formulations.units import seconds
from solver.heuristics.balance import Balance, Split
from solver.heuristics.baselines import Found
from solver.heuristics.node_orders import best_plan


def _replicated_share(workload: Workload) -> float:
    """Largest share of a layer's activations that tensor parallelism does not split.

    That of parameters is smaller: biases, norms, positions.
    """
    layers = [run.layer for run in workload.layer_runs]
    pairs = [(one.replicated_activation_bytes, one.sharded_activation_bytes) for one in layers]
    return max(whole / (whole + split) for whole, split in pairs if whole)


def _merged(group: NodeGroup, tp: int, instance: Instance) -> NodeGroup:
    """The group with gpus_per_node / tp GPUs; headroom and reserve come off each of the tp."""
    gpu, limits = group.gpu, instance.limits
    left, reserve_bytes = 1 - limits.memory_headroom, limits.framework_reserve_bytes
    larger = tp / (1 + (tp - 1) * _replicated_share(instance.workload))
    usable_bytes = larger * (gpu.memory_bytes * left - reserve_bytes)
    changes = {
        "name": f"{tp} {gpu.name}",
        "memory_bytes": int((usable_bytes + reserve_bytes) / left),
        "memory_bandwidth_bytes_per_s": tp * gpu.memory_bandwidth_bytes_per_s,
    }
    size = group.gpus_per_node // tp
    return group.but(gpu=gpu.model_copy(update=changes), gpus_per_node=size)


def super_gpus(instance: Instance, degrees: Sequence[int]) -> Instance:
    """Tensor degrees per node group, written as machines of larger GPUs: each of tp GPUs of a node.

    An emulation of plans with other degrees on every GPU type, for searches that know one degree.
    Layer times are those measured at the group's degree. Memory: of what a stage holds, P bytes, at
    most the share r is whole on each of the tp GPUs, so that each holds at most (r + (1 - r) / tp)
    P. A larger GPU has tp / (1 + (tp - 1) r) times the memory, and what fits there fits. What it
    cannot tell: the tp lanes of a message between stages travel once, as with scatter and gather.
    """
    assert instance.profile is not None
    pairs = list(zip(instance.cluster.groups, degrees, strict=True))
    sizes = {(group.gpu.name, tp) for group, tp in pairs}
    entries = [e for e in instance.profile.entries if (e.gpu, e.tp) in sizes]
    known = {e.but(gpu=f"{e.tp} {e.gpu}", tp=1) for e in entries}
    profile = Profile(
        source=instance.profile.source,
        includes_tensor_parallel_traffic=True,
        entries=tuple(sorted(known, key=repr)),
    )
    groups = tuple(_merged(group, tp, instance) for group, tp in pairs)
    return instance.but(
        profile=profile, cluster={"groups": groups}, search={"tensor_parallel": (1,)}
    )


def degrees_per_group(instance: Instance) -> Iterator[tuple[int, ...]]:
    """All choices of a tensor degree per group that tile its nodes."""
    allowed = instance.search.tensor_parallel or ()
    yield from product(
        *([tp for tp in allowed if g.gpus_per_node % tp == 0] for g in instance.cluster.groups)
    )


CASES = ROOT / "bench" / "sailor"
NAMES = ("opt_16_32", "opt_32_96", "neo_4_16", "neo_4_32", "neo_16_32", "neo_32_96")


def sailor_split(tables: CostTables) -> Split | None:
    """Equal numbers of layers, the r left over on the last r stages; None if a stage has no block.

    Sailor's public code, sailor/Planner/sailor_planner/cpp_src/planner_utils.cpp, get_stages.
    """
    stages = tables.config.num_stages
    each, left_over = divmod(tables.num_layers, stages)
    ends = [k * each + max(0, k - (stages - left_over)) for k in range(stages + 1)]
    least = least_ends(tables)
    met = all(least[start] <= end for start, end in pairwise(ends))
    return tuple(ends) if met else None


def even_plan(instance: Instance) -> Found:
    """The best of Sailor's splits that fit, over all configurations and node orders."""

    def rule(costs: Balance) -> Split | None:
        split = sailor_split(costs.space.tables)
        return split if split and costs.takes(split) else None

    return best_plan(instance, configs(instance), rule)


@dataclass(frozen=True)
class Both:
    """Even split and optimum of one plan space.

    degrees: tensor degrees per node group. repeated: the verifier has the proof of the bound.
    """

    degrees: tuple[int, ...] | None
    even_s: float | None
    ours_s: float | None
    bound_s: float | None
    ours_config: dict[str, Any] | None
    repeated: bool
    problems: tuple[str, ...]

    @property
    def rank(self) -> float:
        """Ours, or infinity without a plan."""
        return inf if self.ours_s is None else self.ours_s


def solved(
    instance: Instance,
    options: tuple[float, float],
    degrees: tuple[int, ...] | None = None,
    longest_s: float | None = None,
) -> Both:
    """Both plans of one plan space; options: seconds, gap.

    longest_s: no longer step of ours matters, and that there is none may be what is proved.
    """
    limited = instance.but(limits={"max_step_time_s": longest_s})
    even = even_plan(instance)
    solution = hetplan.solve(limited, time_limit_s=options[0], gap=options[1])
    checked, config = hetplan.verify(solution, limited), solution.document.config
    return Both(
        degrees=degrees,
        even_s=even and seconds(even[1]),
        ours_s=solution.step_time_s,
        bound_s=solution.lower_bound_s,
        ours_config=None if config is None else config.model_dump(mode="json"),
        repeated=checked.complete and solution.status != "unknown",
        problems=tuple(checked.problems),
    )


def best(found: Sequence[Both]) -> Both:
    """The best of several plan spaces: of what is proved of all together."""
    evens = [one.even_s for one in found if one.even_s is not None]
    bounds = [one.bound_s for one in found if one.bound_s is not None]
    return replace(
        min(found, key=lambda one: one.rank),
        even_s=min(evens, default=None),
        bound_s=min(bounds, default=None),
        repeated=all(one.repeated for one in found),
        problems=tuple(problem for one in found for problem in one.problems),
    )


def measured(path: Path, limit_s: float, gap: float) -> dict[str, Any]:
    """Uniform degrees and degrees per GPU type on one instance."""
    instance, begun = load_instance(path), cpu_seconds()
    uniform = solved(instance, (limit_s, gap))
    between = cpu_seconds()
    found: list[Both] = []
    for degrees in degrees_per_group(instance):
        known = min((one.ours_s for one in found if one.ours_s is not None), default=None)
        found.append(solved(super_gpus(instance, degrees), (limit_s, gap), degrees, known))
    per_type = best(found)
    return {
        "instance": path.stem,
        "options": {"time_limit_s": limit_s, "gap": gap},
        "uniform": asdict(uniform) | {"cpu_s": between - begun},
        "per_type": asdict(per_type) | {"cpu_s": cpu_seconds() - between},
    }


def line(figures: dict[str, Any]) -> str:
    """One instance in words."""

    def words(space: str) -> str:
        one = figures[space]
        if one["even_s"] is None or one["ours_s"] is None:
            return f"{space}: even split {one['even_s']} s, ours {one['ours_s']} s"
        return (
            f"{space}: even split {one['even_s']:.3f} s "
            f"({100 * (one['even_s'] / one['ours_s'] - 1):+.1f} %), ours {one['ours_s']:.3f} s, "
            f"gap {100 * (1 - one['bound_s'] / one['ours_s']):.2g} %"
            f"{'' if one['repeated'] else ', not verified'}, {one['cpu_s']:.0f} s CPU"
        )

    degrees = figures["per_type"]["degrees"]
    return f"{figures['instance']}: {words('uniform')}; {words('per_type')}, tp {degrees}"


def contradicted(figures: dict[str, Any]) -> bool:
    """Whether an even split is below our bound, or the verifier found a problem."""

    def wrong(one: dict[str, Any]) -> bool:
        known = one["even_s"] is not None and one["bound_s"] is not None
        return (known and one["even_s"] < one["bound_s"]) or bool(one["problems"])

    return wrong(figures["uniform"]) or wrong(figures["per_type"])


def main() -> None:
    """Runs the instances named, or all."""
    parser = command("sailor", time_limit=120.0, gap=1e-4)
    parser.add_argument("instance", nargs="*", default=NAMES, help="names in bench/sailor")
    chosen = parser.parse_args()
    failed = False
    for name in chosen.instance:
        figures = measured(CASES / f"{name}.yaml", chosen.time_limit, chosen.gap)
        print(line(figures), flush=True)
        append(chosen.out, [record("sailor", figures)])
        failed |= contradicted(figures)
    sys.exit(int(failed))
