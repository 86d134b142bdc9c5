"""How far rules of thumb, AMP and min-max are from the proved optimum, and what models prove.

    python -m bench gap [INSTANCE ...] [--time-limit S] [--gap G] [--workers N] [--methods ...]

Every plan is judged by the same simulator. Every method runs in a process of its own, so that its
peak memory is its own. Records go to bench/results/gap.jsonl; time-outs too.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from rich.console import Console

from bench.command import Column, command, config_of, figure_table, search_options, wide_console
from bench.records import INSTANCES, append, cpu_seconds, peak_rss_bytes, record
from bench.searches import Figures, apart, head, outcome_of
from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.space import configs
from solver.heuristics.baselines import Found, amp_plans, equal_split_of, megatron_rule, minmax_of
from solver.heuristics.node_orders import best_plan
from solver.options import SolveOptions
from solver.result import Result, SearchLog, Status, Termination, objective_weight
from solver.search import by_model
from solver.search.driver import solve
from solver.search.fathoming import Closing

Method = Callable[[Instance, SolveOptions], Result]
Stop = Callable[[], bool]


def _stop(options: SolveOptions, start_s: float) -> Stop:
    limit_s = options.time_limit_s
    return lambda: limit_s is not None and time.perf_counter() - start_s > limit_s


def _outcome(
    instance: Instance, find: Callable[[Instance, Stop], Found], options: SolveOptions
) -> Result:
    start_s = time.perf_counter()
    stop = _stop(options, start_s)
    found = find(instance, stop)
    runtime_s = time.perf_counter() - start_s
    ended = Termination.TIME_LIMIT if stop() else Termination.HEURISTIC
    plan, step_time_ns = found or (None, None)
    objective = found and found[1] * objective_weight(instance, found[0].config)
    return Result(
        instance=instance,
        status=Status.UNKNOWN if plan is None else Status.FEASIBLE,
        termination=ended,
        plan=plan,
        step_time_ns=step_time_ns,
        objective=objective,
        bound=None,
        runtime_s=runtime_s,
        log=SearchLog(),
        method="minmax",
    )


def minmax(instance: Instance, options: SolveOptions) -> Result:
    """Min-max splits of all configurations and FASOP's node orders, the best by simulation."""
    return _outcome(instance, lambda i, stop: best_plan(i, configs(i), minmax_of, stop), options)


def equal(instance: Instance, options: SolveOptions) -> Result:
    """Even splits of the same configurations and orders, the best by simulation."""
    return _outcome(
        instance, lambda i, stop: best_plan(i, configs(i), equal_split_of, stop), options
    )


def megatron(instance: Instance, options: SolveOptions) -> Result:
    """The one plan of Megatron's rule of thumb."""
    return _outcome(instance, lambda i, _: megatron_rule(i, configs(i)), options)


def amp(instance: Instance, options: SolveOptions) -> Result:
    """The plan that AMP's own estimate calls the best."""
    return _outcome(instance, lambda i, stop: [None, *amp_plans(i, configs(i), stop)][-1], options)


def exact(instance: Instance, options: SolveOptions) -> Result:
    """The exact search, with its proved bound."""
    return solve(instance, options)


def _by_model(method: Literal["cpsat", "milp"]) -> Method:
    """One model of all configurations that bounds leave open."""
    return lambda instance, options: solve(instance, replace(options, method=method))


#: Sizes of the models of this process; `measure` has a process for each method.
_SIZES = list[dict[str, int]]()


class _Counted(by_model.AtOnce):
    """Notes how large its model is."""

    def closings(self) -> Iterator[Closing]:
        """As they stand, the model's size noted beside."""
        native = self.loop.model.built.model.native
        proto = getattr(native, "proto", None)  # of CP-SAT; PuLP counts columns itself
        variables = native.variables() if proto is None else proto.variables
        rows = native.constraints if proto is None else proto.constraints
        size = {"variables": len(variables), "constraints": len(rows)}
        _SIZES[:] = [size | {"configs": len(self.loop.model.held)}]
        return super().closings()


METHODS: dict[str, Method] = {
    "minmax": minmax,
    "equal": equal,
    "megatron": megatron,
    "amp": amp,
    "exact": exact,
    "cpsat": _by_model("cpsat"),
    "milp": _by_model("milp"),
}
#: Those that are asked for unless others are: models take minutes on most instances.
USUAL = ("minmax", "equal", "megatron", "amp", "exact")


def measure(instance: Instance, method: str, options: SolveOptions) -> Figures:
    """Outcome of one method on one instance, in this process."""
    start_s = cpu_seconds()
    with patch("solver.search.by_model.AtOnce", _Counted):
        found = outcome_of(METHODS[method](instance, options))
    found |= {"cpu_s": cpu_seconds() - start_s, "peak_rss_bytes": peak_rss_bytes()}
    return found | ({"model": _SIZES[0]} if _SIZES else {})


def above_bound(objective: float | None, bound: float | None) -> float | None:
    """How far an objective is above a proved bound, relative to the bound."""
    if objective is None or not bound:
        return None
    return objective / bound - 1


def compare(
    name: str, instance: Instance, methods: Sequence[str], options: SolveOptions
) -> list[Figures]:
    """One record per method on one instance, held against the bound of the exact search."""
    found = {method: apart(measure, instance, method, options) for method in methods}
    bound = found["exact"]["bound"] if "exact" in found else None
    return [
        record(
            "gap",
            head(name, instance, options)
            | {"method": method}
            | figures
            | {"above_bound": above_bound(figures["objective"], bound)},
        )
        for method, figures in found.items()
    ]


TABLE: dict[str, Column] = {
    "instance": "instance",
    "method": "method",
    "tensor x data x pipeline, micro-batch": config_of,
    "status": "status",
    "step ms": ("step_time_ns", 1e-6, 3),
    "above bound %": ("above_bound", 100, 2),
    "seconds": ("runtime_s", 1, 2),
    "peak MiB": ("peak_rss_bytes", 1 / 2**20, 0),
    "configs, variables, rows": lambda row: (
        ", ".join(str(row["model"][name]) for name in ("configs", "variables", "constraints"))
        if row.get("model")
        else ""
    ),
}


def summary(records: Iterable[Figures]) -> list[str]:
    """One line per method: on how many instances it meets the bound, mean and worst distance."""
    distances: dict[str, list[float]] = {}
    for one in records:
        if one["above_bound"] is not None:
            distances.setdefault(one["method"], []).append(one["above_bound"])
    return [
        f"{method}: at most 0.01 % above the bound on {sum(d <= 1e-4 for d in found)} of "
        f"{len(found)}, mean {sum(found) / len(found):.2%}, worst {max(found):.2%}"
        for method, found in distances.items()
    ]


#: Files of results, and of many instances.
NOT_ONE = ("best_known", "aws_bert", "aws_gpt2xl")


def instance_files(names: Sequence[str]) -> list[Path]:
    """Files of instances given by path or name; all stored ones if none is given."""
    if not names:
        return sorted(p for p in INSTANCES.glob("*.yaml") if p.stem not in NOT_ONE)
    return [Path(n) if n.endswith(".yaml") else INSTANCES / f"{n}.yaml" for n in names]


def each_instance(
    console: Console,
    names: Sequence[str],
    out: Path,
    compared: Callable[[str, Instance], list[Figures]],
) -> list[Figures]:
    """What is found for the instances, stored after each; a broken file ends it with one line."""
    try:
        instances = {path.stem: load_instance(path) for path in instance_files(names)}
    except InstanceError as error:
        sys.exit(str(error))
    records: list[Figures] = []
    for name, instance in instances.items():
        console.print(f"{name} ...")
        found = compared(name, instance)
        append(out, found)
        records += found
    return records


def main() -> None:
    """Runs the benchmark; records are stored after every instance."""
    parser = command("gap", time_limit=60.0, gap=0.0, seed=0, workers=1)
    parser.add_argument("instance", nargs="*", help="file, or name in instances/; default: all")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=USUAL)
    chosen = parser.parse_args()
    options = search_options(chosen)
    console = wide_console()

    def compared(name: str, instance: Instance) -> list[Figures]:
        return compare(name, instance, chosen.methods, options)

    records = each_instance(console, chosen.instance, chosen.out, compared)
    console.print(figure_table(records, TABLE))
    for line in summary(records):
        console.print(line)
