"""HotSPa's table 3: its own combinations of strategies, and what we choose from its figures.

Its buckets are atoms, its seconds of a strategy for a bucket add up; where it gives those of
several buckets together, the one that is missing is what the others leave. What it did not measure
is absent. Its "others" are the switches of a step together, the same on both data sets; those of a
combination that no shorter one has share what these leave. So each published step costs what is
published, and so does every other tour of these switches: all ways around go through the same sums.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from bench.records import json_of, reference
from formulations.lengths.problem import Atom, Mixed, Strategy, Switching
from formulations.lengths.tour import Tour
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.lengths.choose import choose

DATA_SETS = ("CommonCrawl", "GitHub")
Edge = tuple[str, str]


def table() -> dict[str, Any]:
    """Table 3 as it is stored."""
    path = reference("hotspa/table3.json") / "hotspa" / "table3.json"
    found: dict[str, Any] = json_of(path)
    return found


def published(table: Mapping[str, Any], data_set: str) -> dict[str, int]:
    """Times in ns of every published combination on a data set."""
    totals = {
        name.split("/")[1]: one["published_total"]
        for name, one in table["checks"].items()
        if name.startswith(data_set)
    }
    return {name: _ns(total) for name, total in totals.items()}


def problem(table: Mapping[str, Any], data_set: str) -> Mixed:
    """The choice that table 3 leaves."""
    buckets = [upper for _, upper in table["buckets"]]
    cells = {}
    for name, (time_s, _) in table["derived"]["times"][data_set].items():
        bucket, strategy = name.split(" ")
        cells[strategy, int(bucket.split("-")[1][:-1]) * 1024] = _ns(time_s)
    names = sorted({strategy for strategy, _ in cells})
    strategies = tuple(
        Strategy(q, atoms_ns=tuple(cells.get((q, k)) for k in buckets)) for q in names
    )
    switches = _switches(table)
    times = tuple(tuple(switches.get((a, b)) for b in names) for a in names)
    none = tuple(tuple(0 for _ in names) for _ in names)
    atoms = tuple(Atom(tokens, 1) for tokens in buckets)
    return Mixed(atoms, strategies, Switching(times, none, parameters_return=True))


def _switches(table: Mapping[str, Any]) -> dict[Edge, int]:
    """Times in ns of every switch of a published combination, which ends where it began."""
    known: dict[Edge, int] = {}
    for name, groups in table["combinations"].items():
        others_s = table["data"]["CommonCrawl"][name]["others"]
        if others_s is None:
            continue
        order = [str(tuple(group["strategy"])).replace(" ", "") for group in groups]
        edges = list(pairwise([order[-1], *order]))
        new = [edge for edge in edges if edge not in known]
        left = _ns(others_s) - sum(known.get(edge, 0) for edge in edges)
        for n, edge in enumerate(new):
            known[edge] = left * (n + 1) // len(new) - left * n // len(new)
    return known


def _ns(time_s: float) -> int:
    return round(time_s * NANOSECONDS_PER_SECOND)


def words(mixed: Mixed, tour: Tour) -> str:
    """Buckets and strategies of a step."""
    return ", ".join(
        f"{mixed.strategies[group.strategy].name} up to "
        f"{mixed.atoms[group.atoms[-1]].tokens // 1024}K"
        for group in tour.groups
    )


def main() -> None:
    """Prints a line for each data set."""
    known = table()
    print("| data set | published, s | best of them | chosen, s | gap | strategies |")
    print("|---|---|---|---|---|---|")
    for data_set in DATA_SETS:
        mixed = problem(known, data_set)
        theirs, ours = published(known, data_set), choose(mixed, "free")
        listed = ", ".join(f"{name} {seconds(ns):.1f}" for name, ns in theirs.items())
        best = seconds(min(theirs.values()))
        chosen = f"{seconds(ours.step_ns):.1f} | {ours.gap:.0%} | {words(mixed, ours.tour)}"
        print(f"| {data_set} | {listed} | {best:.1f} | {chosen} |")
