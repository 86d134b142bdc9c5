"""The command line: every command parses, calls and prints, nothing else.

What is slow to import is imported inside the commands, so that `--help` is quick.
"""

from solver.cli.interrupt import loading

with loading():
    from typing import Annotated

    import typer

    from solver.cli.clusters import pareto_command, subsets_command
    from solver.cli.errors import with_error_line
    from solver.cli.fleets import recover_command, templates_command
    from solver.cli.lengths import lengths_command
    from solver.cli.plans import (
        diff_command,
        explain_command,
        export_command,
        report_command,
        show_command,
        verify_command,
    )
    from solver.cli.replay import replay_command
    from solver.cli.setup import (
        calibrate_command,
        catalogue_command,
        init_command,
        profile_command,
        schema_command,
        workload_command,
    )
    from solver.cli.solving import cross_check_command, evaluate_command, solve_command
    from solver.cli.study import show_study_command, study_app
    from solver.cli.switch import switch_command
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


#: For the line `closed by`; the same in the README.
CLOSED_BY = (
    "The line 'closed by' counts the combinations of degrees and strategies by what showed that "
    "none of their plans is better. "
    "memory, blocks, batch: they have no plan; limit: none within your limits; work: their GPUs "
    "cannot do the work sooner; filling: nor with the time in which a pipeline fills and empties; "
    "packing: nor with whole layers on every stage; pipeline: nor on any node order; enumeration, "
    "cpsat, milp: every plan was looked at, or refuted with others like it."
)

app.command("init")(with_error_line(init_command))
app.command("calibrate")(with_error_line(calibrate_command))
app.command("profile")(with_error_line(profile_command))
app.command("solve", epilog=CLOSED_BY)(with_error_line(solve_command))
app.command("cross-check")(with_error_line(cross_check_command))
app.command("pareto")(with_error_line(pareto_command))
app.command("subsets")(with_error_line(subsets_command))
app.command("lengths")(with_error_line(lengths_command))
app.command("templates")(with_error_line(templates_command))
app.command("verify")(with_error_line(verify_command))
app.command("show", epilog=CLOSED_BY)(with_error_line(show_command))
app.command("evaluate")(with_error_line(evaluate_command))
app.command("explain")(with_error_line(explain_command))
app.command("diff")(with_error_line(diff_command))
app.command("report")(with_error_line(report_command))
app.command("export")(with_error_line(export_command))
app.command("recover")(with_error_line(recover_command))
app.command("switch")(with_error_line(switch_command))
app.command("replay")(with_error_line(replay_command))
app.command("workload")(with_error_line(workload_command))
study_app.command("show")(with_error_line(show_study_command))
app.add_typer(study_app)
app.command("schema")(with_error_line(schema_command))
app.command("catalogue")(with_error_line(catalogue_command))
