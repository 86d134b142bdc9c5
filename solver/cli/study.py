"""`study show`: what a study holds, and what is still open."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solver.cli.search_options import JsonOption
from solver.cli.terminal import print_report, say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from formulations.instance import Instance
    from solver.result import ShapeRecord
    from solver.search.overview import SearchOverview
    from solver.study.store import Study

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
    from solver.search.overview import search_overview
    from solver.study.store import read_study

    with read_study(study) as (kept, notes):
        found = search_overview(kept, notes)
        if as_json:
            say(json.dumps(_fields(kept, found), indent=1))
        else:
            print_report(_text(kept, found))


def _fields(study: "Study", found: "SearchOverview | None") -> dict[str, object]:
    """What `--json` prints; objective and bound as `solve` counts them."""
    fields: dict[str, object] = {"instance": study.instance.name}
    if found is not None:
        fields["solve"] = {
            "shapes_closed": found.closed,
            "shapes_open": len(found.open),
            "step_time_s": None if found.step_time_ns is None else found.step_time_ns / 1e9,
            "objective": found.objective,
            "bound": found.bound,
            "gap": found.gap,
            "spent_s": found.spent_s,
            "open": [one.model_dump(mode="json") for one in found.open],
        }
    return fields


def _text(study: "Study", found: "SearchOverview | None") -> "list[RenderableType]":
    from solver.report.layout import labelled, table
    from solver.report.quantities import counted, percent, time_text

    lines = [("instance", study.instance.name)]
    if found is None:
        return [labelled([*lines, ("solve", "not begun")])]
    best = "none yet" if found.step_time_ns is None else time_text(found.step_time_ns / 1e9)
    gap = "unknown" if found.gap is None else percent(found.gap)
    lines += [
        ("best plan", f"{best}, gap {gap}"),
        ("shapes", f"{found.closed} closed, {len(found.open)} open"),
        ("spent", f"{time_text(found.spent_s)} of processors on the shapes that took a search"),
    ]
    rows = [_row(study.instance, one) for one in found.open[:MOST_LISTED]]
    parts: list[RenderableType] = [labelled(lines)]
    if rows:
        texts = ("open shapes", "nodes", "schedule", "recompute", "ZeRO")
        parts += ["", table(texts, ("bound",), rows)]
    if more := len(found.open) - len(rows):
        parts.append(f"and {counted(more, 'open shape')} more")
    return parts


def _row(instance: "Instance", record: "ShapeRecord") -> tuple[str, ...]:
    from solver.report.degrees import tensor_text
    from solver.report.quantities import time_text

    shape, groups = record.shape, instance.cluster.groups
    return (
        f"{tensor_text(shape)} x {shape.dp} x {shape.pp}, {shape.micro_batch}",
        " + ".join(
            f"{n} {group.name}" for n, group in zip(shape.nodes_used, groups, strict=True) if n
        ),
        shape.schedule,
        "/".join(shape.recompute),
        str(shape.zero),
        time_text((record.bound_ns or 0) / 1e9),
    )
