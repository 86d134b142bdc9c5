"""`recover`: the next fleet after nodes are lost or join."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formulations.errors import PlanError, PlannerError
from solver.cli.files import check_writable, refuse_changed, write_text
from solver.cli.search_options import JsonOption, limit, time_ns
from solver.cli.terminal import print_report, say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from solver.fleet_document import FleetDocument
    from solver.fleets.recovery import Horizon


def _names(text: str | None) -> list[str]:
    names = [] if text is None else [name.strip() for name in text.split(",")]
    return list(dict.fromkeys(name for name in names if name))


def _horizon(horizon: str, restart: str) -> "Horizon":
    from solver.fleets.recovery import Horizon

    times = Horizon(time_ns("--horizon", horizon, least_ns=1), time_ns("--restart", restart))
    if times.restart_ns >= times.time_ns:
        raise PlannerError(
            f"--restart {restart} leaves nothing of --horizon {horizon}; allowed: a shorter restart"
        )
    return times


def recover_command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Fleet file written by templates or recover.")
    ],
    lost: Annotated[
        str | None, typer.Option(metavar="NODES", help="Nodes that failed, such as a40-3,a40-7.")
    ] = None,
    joined: Annotated[
        str | None, typer.Option(metavar="NODES", help="Lost nodes that are back.")
    ] = None,
    horizon: Annotated[
        str,
        typer.Option(metavar="TIME", help="For how long the next fleet is expected to train."),
    ] = "1h",
    restart: Annotated[
        str,
        typer.Option(metavar="TIME", help="What a recovery takes besides copying layers."),
    ] = "0s",
    instance: Annotated[
        Path | None, typer.Option(help="Instance file that the plan has to be for.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the next fleet here.")] = None,
    as_json: JsonOption = False,
    time_limit: Annotated[
        float | None, limit("Stop with the best fleet so far, and its gap.")
    ] = None,
) -> None:
    """Form the next fleet after nodes are lost or join: most steps trained within a horizon.

    Exit code 0: a fleet was found; 2: bad input; 3: no template fits the nodes that are left; 4:
    none found within the limit.
    """
    from solver.files import to_json
    from solver.fleet_document import FleetDocument
    from solver.fleets.fleet import next_fleet

    gone, back = _names(lost), _names(joined)
    if not gone and not back:
        raise PlannerError("name nodes with --lost or --joined, or both")
    times = _horizon(horizon, restart)
    check_writable(out)
    document = FleetDocument.read(plan)
    check_fleet(document, plan, instance)
    found = next_fleet(document, gone, back, times, time_limit)
    if out is not None:
        write_text(out, to_json(found))
    if as_json:
        say(to_json(found), end="")
    else:
        print_report(fleet_report(found))


def check_fleet(document: "FleetDocument", plan: Path, instance: Path | None = None) -> None:
    """Raises PlanError for a fleet that was changed by hand, or that is of another instance."""
    from solver.verify import Effort, instance_differences, verify_fleet

    refuse_changed(plan, verify_fleet(document, Effort(prove="nothing")))
    if instance is not None:
        from formulations.instance.load import load_instance

        different = instance_differences(document.instance, load_instance(instance))
        if different:
            raise PlanError(str(plan), different[0], f"a fleet of the instance {instance}")


def fleet_report(document: "FleetDocument") -> "list[RenderableType]":
    """A fleet, and why nodes are idle."""
    from formulations.units import seconds
    from solver.fleets.fleet import step_of_all_nodes_ns
    from solver.report.fleet import fleet_text

    all_nodes_ns = step_of_all_nodes_ns(document) if document.idle else None
    return fleet_text(document, None if all_nodes_ns is None else seconds(all_nodes_ns))
