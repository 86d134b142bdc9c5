"""The command line: every command parses, calls and prints, nothing else.

What is slow to import is imported inside the commands, so that `--help` is quick.
"""

from solver.cli.errors import loading, with_error_line

with loading():
    from collections.abc import Callable
    from typing import Annotated

    import typer

    from formulations.errors import PlannerError
    from solver.cli import fleets, plans, setup, solving
    from solver.cli.search_options import OPTIONS, with_options
    from solver.cli.terminal import say

app = typer.Typer(
    name="hetplan",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from solver.files import HETPLAN_VERSION

        say(f"hetplan {HETPLAN_VERSION}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=with_error_line(_print_version),
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Plan the training of a transformer on mixed GPUs, and prove how good the plan is."""


COMMANDS: dict[str, Callable[..., None]] = {
    "init": setup.init_command,
    "calibrate": setup.calibrate_command,
    "profile": setup.profile_command,
    "solve": solving.solve_command,
    "shortlist": solving.shortlist_command,
    "cross-check": solving.cross_check_command,
    "pareto": solving.pareto_command,
    "lengths": solving.lengths_command,
    "templates": fleets.templates_command,
    "verify": plans.verify_command,
    "show": plans.show_command,
    "evaluate": solving.evaluate_command,
    "explain": plans.explain_command,
    "diff": plans.diff_command,
    "report": plans.report_command,
    "export": plans.export_command,
    "recover": fleets.recover_command,
    "switch": plans.switch_command,
    "replay": fleets.replay_command,
    "catalogue": setup.catalogue_command,
}
for name, command in COMMANDS.items():
    epilog = OPTIONS["closed_by"] if name in ("solve", "show") else None
    app.command(name, epilog=epilog)(with_error_line(with_options(name, command)))


def _moved(context: typer.Context) -> None:
    raise PlannerError(f"{context.info_name}: now hetplan {OPTIONS['moved'][context.info_name]}")


for name in OPTIONS["moved"]:
    ignoring = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(name, hidden=True, context_settings=ignoring)(with_error_line(_moved))
