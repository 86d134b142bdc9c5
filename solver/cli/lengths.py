"""`lengths`: which strategy runs which sequences of a step of many lengths."""

from formulations.errors import InstanceError
from solver.cli.search_options import InstanceArgument
from solver.cli.terminal import print_report, steps_display


def lengths_command(instance: InstanceArgument) -> None:
    """List the strategies for a step of INSTANCE, whose section `lengths` has many lengths.

    Exit code 0: strategies; 2: bad input; 3: sequences that no strategy takes.
    """
    from formulations.instance.load import load_instance
    from solver.lengths.candidates import candidates
    from solver.report.lengths_text import strategies_text

    problem = load_instance(instance)
    if problem.lengths is None:
        allowed = "one with histogram, file or log_normal"
        raise InstanceError(str(instance), "no section lengths", allowed)
    with steps_display("layouts") as tell:
        found = candidates(problem, tell)
    print_report(strategies_text(problem, found.mixed, found.above, found.plans is None))
