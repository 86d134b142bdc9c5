"""What a study holds, and what is still open: text and data of `show --study`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from formulations.instance import Instance
from solver.cli.terminal import gap_text, print_either
from solver.clusters.member import family_overviews
from solver.files import fields_of
from solver.lengths.candidates import LENGTHS
from solver.report.layout import Labelled, Lines, Parts, table_of
from solver.report.naming import degrees_line
from solver.report.quantities import counted, money, time_text
from solver.search.driver import SearchOverview, search_overview
from solver.study.store import open_study
from solver.templates.generate import open_mixes

#: Open configurations that are listed; the others are counted.
MOST_LISTED = 10


def show_study(path: Path, as_json: bool) -> None:
    """Prints how far each of the commands has come that share the study."""
    with open_study(path, None) as kept:
        notes, instance, search = kept.notes, kept.instance, search_overview(kept)
        templates, families = open_mixes(kept), list(family_overviews(notes))
        layouts = json.loads(notes[LENGTHS])["layouts"] if LENGTHS in notes else None
        closed = kept.count(LENGTHS)
    fields: dict[str, Any] = {"instance": instance.name}
    parts: list[RenderableType] = []
    if search is not None:
        step_ns = search.result.step_time_ns
        fields["solve"] = {
            "configs_closed": search.closed,
            "configs_open": len(search.open),
            "step_time_s": step_ns and step_ns / 1e9,
            **fields_of(search.result, "objective", "bound", "gap"),
            "spent_s": search.spent_s,
            "open": [record.model_dump(mode="json") for record in search.open],
        }
        parts += _search_text(instance, search)
    if templates is not None:
        num_closed, open_nodes = templates
        fields["templates"] = {"closed": num_closed, "open": open_nodes}
        line = f"{instance.name}, {num_closed} mixes of nodes closed, {len(open_nodes)} open"
        parts.append(Labelled([("templates", line)], _open(instance, open_nodes)))
    if layouts is not None:
        fields["lengths"] = {"layouts_closed": closed, "layouts_open": layouts - closed}
        line = f"{closed} layouts closed, {layouts - closed} open"
        parts.append(Labelled([(LENGTHS, f"{instance.name}, {line}")]))
    if families:
        fields["clusters"] = [asdict(family) for family in families]
    for family in families:
        asked = [instance.name]
        if any(family.fewest):
            asked.append(f"{_nodes(instance, family.fewest)} at least")
        if family.max_step_time_s is not None:
            asked.append(f"{time_text(family.max_step_time_s)} per step at most")
        if family.max_cost_usd_per_step is not None:
            asked.append(f"{money(family.max_cost_usd_per_step)} per step at most")
        label = "subsets" if family.aim == "subsets" else "pareto"
        line = (
            f"{', '.join(asked)}: clusters {family.closed} closed, {len(family.open)} open, "
            f"{family.front} on the front, gap {gap_text(family.gap)}"
        )
        parts.append(Labelled([(label, line)], _open(instance, family.open)))
    print_either(as_json, lambda: fields, lambda: parts or [f"{instance.name}: nothing yet"])


def _search_text(instance: Instance, search: SearchOverview) -> Parts:
    step_ns = search.result.step_time_ns
    best = "none yet" if step_ns is None else time_text(step_ns / 1e9)
    closed = f"{search.closed} configurations closed, {len(search.open)} open"
    spent = f"{time_text(search.spent_s)} of processors on the configurations that took a search"
    lines = [
        ("solve", f"{instance.name}, {closed}"),
        ("best plan", f"{best}, gap {gap_text(search.result.gap)}"),
        ("spent", spent),
    ]
    yield Labelled(lines)
    if listed := search.open[:MOST_LISTED]:
        open_configs = table_of(
            listed,
            {
                "open configurations": lambda row: degrees_line(
                    row.config, row.config.degrees_used
                ),
                "nodes": lambda row: _nodes(instance, row.config.nodes_used),
                "schedule": lambda row: row.config.schedule,
                "recompute": lambda row: "/".join(row.config.recompute),
                "ZeRO": lambda row: str(row.config.zero),
            },
            {"bound": lambda row: time_text((row.bound_ns or 0) / 1e9)},
        )
        more = len(search.open) - len(listed)
        yield Group(open_configs, *[f"and {counted(more, 'open config')} more"] * bool(more))


def _open(instance: Instance, open_nodes: Sequence[Sequence[int]]) -> Lines:
    if open_nodes:
        named = ", ".join(_nodes(instance, counts) for counts in open_nodes[:MOST_LISTED])
        yield "open", named + ", ..." * (len(open_nodes) > MOST_LISTED)


def _nodes(instance: Instance, counts: Sequence[int]) -> str:
    pairs = zip(counts, instance.cluster.groups, strict=True)
    return " + ".join(f"{count} {group.name}" for count, group in pairs if count)
