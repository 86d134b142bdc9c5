"""`study show`: what a study holds, and what is still open."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solver.cli.search_options import JsonOption
from solver.cli.terminal import print_report, say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from formulations.instance import Instance
    from solver.clusters.member import FamilyOverview
    from solver.result import ShapeRecord
    from solver.search.driver import SearchOverview

#: Open shapes that are listed; the others are counted.
MOST_LISTED = 10

study_app = typer.Typer(
    name="study", no_args_is_help=True, help="Look at what --study has kept.", rich_markup_mode=None
)


@study_app.callback()
def _study() -> None:
    """Look at what --study has kept."""


def show_study_command(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY", help="File written by --study, in use or not.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show how far a study has come: what is closed, the best plan, its bound, what is open.

    Exit code 0: shown; 2: bad input.
    """
    from solver.clusters.member import family_overviews
    from solver.lengths.layouts import LENGTHS
    from solver.search.driver import search_overview
    from solver.study.store import read_study
    from solver.switching.all_pairs import SWITCH
    from solver.templates.kept_templates import open_mixes

    with read_study(study) as (kept, notes):
        instance, search = kept.instance, search_overview(kept, notes)
        templates, families = open_mixes(kept, notes), list(family_overviews(notes))
        layouts = json.loads(notes[LENGTHS])["layouts"] if LENGTHS in notes else None
        closed, switches = (sum(1 for _ in kept.every(kind)) for kind in (LENGTHS, SWITCH))
    if as_json:
        fields: dict[str, object] = {"instance": instance.name}
        if search is not None:
            fields["solve"] = _search_fields(search)
        if templates is not None:
            fields["templates"] = {"closed": templates[0], "open": templates[1]}
        if layouts is not None:
            known = {"layouts_closed": closed, "layouts_open": layouts - closed}
            fields["lengths"] = known | {"switches": switches}
        if families:
            fields["clusters"] = [asdict(one) for one in families]
        say(json.dumps(fields, indent=1))
        return
    parts = list[list["RenderableType"]]()
    if search is not None:
        parts.append(_search_text(instance, search))
    if templates is not None:
        done, left = templates
        line = f"{instance.name}, {done} mixes of nodes closed, {len(left)} open"
        parts.append(_nodes_text(instance, "templates", line, left))
    if layouts is not None:
        line = f"{closed} layouts closed, {layouts - closed} open; {switches} switches timed"
        parts.append(_nodes_text(instance, LENGTHS, f"{instance.name}, {line}", ()))
    parts += [_family_text(instance, one) for one in families]
    spaced = [line for part in parts for line in ("", *part)]
    print_report(spaced[1:] or [f"{instance.name}: nothing yet"])


def _search_fields(found: "SearchOverview") -> dict[str, object]:
    """What `--json` prints of `solve`; objective and bound as it counts them."""
    return {
        "shapes_closed": found.closed,
        "shapes_open": len(found.open),
        "step_time_s": None if found.step_time_ns is None else found.step_time_ns / 1e9,
        "objective": found.objective,
        "bound": found.bound,
        "gap": found.gap,
        "spent_s": found.spent_s,
        "open": [one.model_dump(mode="json") for one in found.open],
    }


def _search_text(instance: "Instance", found: "SearchOverview") -> "list[RenderableType]":
    from solver.report.layout import labelled, table
    from solver.report.quantities import counted, percent, time_text

    best = "none yet" if found.step_time_ns is None else time_text(found.step_time_ns / 1e9)
    gap = "unknown" if found.gap is None else percent(found.gap)
    lines = [
        ("solve", f"{instance.name}, {found.closed} shapes closed, {len(found.open)} open"),
        ("best plan", f"{best}, gap {gap}"),
        ("spent", f"{time_text(found.spent_s)} of processors on the shapes that took a search"),
    ]
    rows = [_row(instance, one) for one in found.open[:MOST_LISTED]]
    parts: list[RenderableType] = [labelled(lines)]
    if rows:
        texts = ("open shapes", "nodes", "schedule", "recompute", "ZeRO")
        parts += ["", table(texts, ("bound",), rows)]
    if more := len(found.open) - len(rows):
        parts.append(f"and {counted(more, 'open shape')} more")
    return parts


def _family_text(instance: "Instance", found: "FamilyOverview") -> "list[RenderableType]":
    from solver.report.quantities import money, percent, time_text

    asked = [instance.name]
    if any(found.fewest):
        asked.append(f"{_nodes(instance, found.fewest)} at least")
    if found.max_step_time_s is not None:
        asked.append(f"{time_text(found.max_step_time_s)} per step at most")
    if found.max_cost_usd_per_step is not None:
        asked.append(f"{money(found.max_cost_usd_per_step)} per step at most")
    gap = "unknown" if found.gap is None else percent(found.gap)
    far = f"{found.closed} closed, {len(found.open)} open, {found.front} on the front, gap {gap}"
    label = "subsets" if found.aim == "subsets" else "pareto"
    return _nodes_text(instance, label, f"{', '.join(asked)}: clusters {far}", found.open)


def _nodes_text(
    instance: "Instance", label: str, line: str, left: Sequence[Sequence[int]]
) -> "list[RenderableType]":
    """A line, and another with the numbers of nodes that are open."""
    from solver.report.layout import labelled

    lines = [(label, line)]
    if left:
        named = ", ".join(_nodes(instance, counts) for counts in left[:MOST_LISTED])
        lines.append(("open", named + (", ..." if len(left) > MOST_LISTED else "")))
    return [labelled(lines)]


def _nodes(instance: "Instance", counts: Sequence[int]) -> str:
    """Numbers of nodes by group."""
    pairs = zip(counts, instance.cluster.groups, strict=True)
    return " + ".join(f"{n} {group.name}" for n, group in pairs if n)


def _row(instance: "Instance", record: "ShapeRecord") -> tuple[str, ...]:
    from solver.report.naming import tensor_text
    from solver.report.quantities import time_text

    shape = record.shape
    return (
        f"{tensor_text(shape.degrees_used)} x {shape.dp} x {shape.pp}, {shape.micro_batch}",
        _nodes(instance, shape.nodes_used),
        shape.schedule,
        "/".join(shape.recompute),
        str(shape.zero),
        time_text((record.bound_ns or 0) / 1e9),
    )
