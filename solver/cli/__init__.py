"""The command line: every command parses, calls and prints, nothing else.

What is slow to import is imported inside the commands, so that `--help` is quick.
"""

import gc
import os

from solver.cli.errors import loading, with_error_line

#: Pydantic looks through all installed packages for plugins, for 35 ms; commands have none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
gc.set_threshold(100_000)  # seldom: most of what lives are modules (mypy, too, collects so rarely)

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


_VERSION = typer.Option(
    "--version", callback=with_error_line(_print_version), is_eager=True, help="Print the version."
)


@app.callback()
def main(version: Annotated[bool, _VERSION] = False) -> None:
    """Plan the training of a transformer on mixed GPUs, and prove how good the plan is."""


_FUNCTIONS = {**vars(setup), **vars(solving), **vars(fleets), **vars(plans)}
#: In the order of the help; `solve` is the function solve_command of one of the modules.
COMMANDS: dict[str, Callable[..., None]] = {
    name: _FUNCTIONS[f"{name.replace('-', '_')}_command"] for name in OPTIONS["commands"]
}
for name, command in COMMANDS.items():
    epilog = OPTIONS["closed_by"] if name in ("solve", "show") else None
    app.command(name, epilog=epilog)(with_error_line(with_options(name, command)))


def _moved(context: typer.Context) -> None:
    raise PlannerError(f"{context.info_name}: now hetplan {OPTIONS['moved'][context.info_name]}")


for name in OPTIONS["moved"]:
    ignoring = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(name, hidden=True, context_settings=ignoring)(with_error_line(_moved))
