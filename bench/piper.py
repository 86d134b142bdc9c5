"""Piper's problem on its published graph: our proved optimum beside the public planner's value.

    python -m bench piper [--gpus-at-most K] [--time-limit S]

`piper/bert32a100.json` of the reference folder (HETPLAN_REFERENCE; without it exit code 2), cases
and values of `piper/expected.json`. The proof is the dynamic program's; in the small cases CP-SAT
is asked for a shorter time, and has to refute it. Fails if a published value is below ours.
Records go to bench/results/piper.jsonl.
"""

import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

from bench.command import command
from bench.piper_problem import PS_PER_S, Edge, PiperModel, ThroughputProblem, ThroughputSearch, Way
from bench.records import append, cpu_seconds, json_of, record, reference
from solver.backends import cpsat
from solver.options import SolveOptions
from solver.result import Status

#: Times are those of a stage, rounded up to picoseconds.
EQUAL = 1e-9
#: With more GPUs CP-SAT does not end within a minute.
MOST_GPUS_FOR_CPSAT = 32


def _way(fields: dict[str, Any]) -> Way:
    return Way(
        time_ps=round(fields["timePerSample"] * PS_PER_S),
        weights_bytes=int(fields["parameterSize"]),
        sample_bytes=int(fields["memoryUsageA"]),
        fixed_bytes=int(fields["memoryUsageB"]),
    )


def _sync(node: dict[str, Any], field: str, other: int) -> dict[int, int]:
    """Bytes (the file calls them times) that an operator adds to an edge, by tensor degree."""
    found = {}
    for tp, ways in node["TMPCs"].items():
        own = {int(way[field][str(other)]) for way in ways}
        assert len(own) == 1, "ways of one degree with unlike traffic"
        found[int(tp)] = own.pop()
    return found


def _edge(nodes: list[dict[str, Any]], fields: dict[str, Any]) -> Edge:
    """An edge of the file; identifiers there are positions."""
    a, b, size = fields["sourceId"], fields["destId"], int(fields["communicationCost"])
    leaving, entering = _sync(nodes[a], "syncTimeBw", b), _sync(nodes[b], "syncTimeFw", a)
    return Edge(
        source=a,
        target=b,
        source_bytes={tp: size + more for tp, more in leaving.items()},
        target_bytes={tp: size + more for tp, more in entering.items()},
    )


def lengthened(problem: ThroughputProblem, layers: list[int], more: int) -> ThroughputProblem:
    """The problem with more layers, as Piper's `insertTransformerLayer` adds them.

    The last layer but one repeats, and copies do not read the mask. (That program repeats the layer
    that its hash set lists first; with GCC's library that is this one.)
    """
    if not more:
        return problem
    edges = {(edge.source, edge.target): edge for edge in problem.edges}
    before, begin, end = layers[-3:]
    into, link = edges[before, begin], edges.pop((begin, end))
    count = len(problem.operators)
    for a, b in pairwise([begin, *range(count, count + more), end]):
        entering = link.target_bytes if b == end else into.target_bytes
        edges[a, b] = Edge(a, b, link.source_bytes, entering)
    operators = (*problem.operators, *[problem.operators[begin]] * more)
    return replace(problem, operators=operators, edges=tuple(edges.values()))


def read_problem(graph: dict[str, Any], case: dict[str, Any]) -> ThroughputProblem:
    """The problem of one case."""
    nodes = graph["nodes"]
    layers = [n for n, node in enumerate(nodes) if node["name"] == "ParallelTransformerLayer"]
    problem = ThroughputProblem(
        operators=tuple(
            {int(tp): tuple(dict.fromkeys(map(_way, ways))) for tp, ways in node["TMPCs"].items()}
            for node in nodes
        ),
        edges=tuple(_edge(nodes, fields) for fields in graph["edges"]),
        gpus=case["k"],
        samples=case["N"],
        memory_bytes=int(case["mem_bytes"]),
        bandwidth_bytes_per_s=case["bw"],
    )
    return lengthened(problem, layers, case["transformers"] - len(layers))


def refuted(search: ThroughputSearch, time_ps: int, limit_s: float) -> dict[str, Any]:
    """What CP-SAT says to a plan with a shorter time than ours."""
    begun = cpu_seconds()
    built = PiperModel(search.problem, search.better_than(time_ps))
    outcome = cpsat.run(built.model, SolveOptions(time_limit_s=limit_s))
    return {"cpsat_says": outcome.status.value, "cpsat_cpu_s": cpu_seconds() - begun}


def measured(graph: dict[str, Any], case: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Our optimum of one case beside the published value."""
    begun = cpu_seconds()
    search = ThroughputSearch(read_problem(graph, case))
    plan = search.solve()
    ours = None if plan is None else plan.time_ps / PS_PER_S
    figures = {"case": case, "published_s": case["tps"], "ours_s": ours}
    figures |= {"proved": True, "cpu_s": cpu_seconds() - begun}
    if plan is not None:
        stages = [[one.operators.bit_count(), one.tp, one.dp] for one in plan.stages]
        figures |= {"stages": stages}
        if case["k"] <= MOST_GPUS_FOR_CPSAT:
            figures |= refuted(search, plan.time_ps, limit_s)
    return figures


def line(figures: dict[str, Any]) -> str:
    """One case in words."""
    case, ours, theirs = figures["case"], figures["ours_s"], figures["published_s"]
    name = f"{case['transformers']} layers, {case['k']} GPUs of {case['mem_bytes'] / 2**30:.3g} GiB"
    if ours is None or theirs is None:
        return f"{name}: ours {ours}, published {theirs}, {figures['cpu_s']:.1f} s CPU"
    return (
        f"{name}: {1e3 * ours:.6f} ms a sample, published {1e3 * theirs:.6f} "
        f"({100 * (ours / theirs - 1):+.4f} %), {len(figures['stages'])} stages, "
        f"{figures['cpu_s']:.1f} s CPU; CP-SAT on less: {figures.get('cpsat_says', 'not asked')}"
    )


def contradicted(figures: dict[str, Any]) -> bool:
    """Whether the public planner or CP-SAT found something shorter, or only one found a plan."""
    ours, theirs = figures["ours_s"], figures["published_s"]
    if ours is None or theirs is None:
        return theirs is not None
    shorter = (Status.OPTIMAL, Status.FEASIBLE)
    return ours > theirs * (1 + EQUAL) or figures.get("cpsat_says") in shorter


def main() -> None:
    """Runs all cases, or those with few GPUs."""
    parser = command("piper", time_limit=60.0)
    parser.add_argument("--gpus-at-most", type=int, default=2048)
    chosen = parser.parse_args()
    folder = reference("piper/expected.json") / "piper"
    failed = False
    for case in json_of(folder / "expected.json")["cases"]:
        if case["k"] > chosen.gpus_at_most:
            continue
        graph = json_of(folder / case["file"])
        figures = measured(graph, case, chosen.time_limit)
        print(line(figures), flush=True)
        append(chosen.out, [record("piper", figures)])
        failed |= contradicted(figures)
    sys.exit(int(failed))
