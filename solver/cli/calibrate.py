"""`calibrate`: an instance whose layer times are corrected by measured steps."""

from pathlib import Path
from typing import Annotated

import typer

from formulations.errors import InstanceError, PlannerError
from solver.cli.files import check_writable, write_text
from solver.cli.terminal import say


def calibrate_command(
    instance: Annotated[Path, typer.Argument(metavar="INSTANCE", help="Instance file.")],
    measured: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="CSV of measured steps: tensor_parallel, data_parallel, pipeline_parallel, "
            "micro_batch, seconds; also memory, group, global_batch, recompute and others.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Instance file to write.")],
) -> None:
    """Correct the layer times of INSTANCE by measured steps; plans then say what error to expect.

    One step per tensor-parallel degree and micro-batch size that matters is enough; several with
    unlike numbers of stages tell the blocks from embedding and head.
    """
    from formulations.instance.load import parse_instance
    from formulations.instance.text_files import read_text
    from solver.measure.calibration import Corrected, fit, memory_headroom, section, summary
    from solver.measure.steps_file import read_steps

    check_writable(out)
    text = read_text(instance, "the path of an instance file")
    planned = parse_instance(text, str(instance), instance.parent)
    if planned.calibration is not None:
        allowed = "the instance without it, and all measured steps in one file"
        raise InstanceError(str(instance), "a calibration already", allowed)
    rows = read_steps(measured, planned)
    steps = [step for step, _ in rows]
    source = f"{measured.name}, {len(steps)} measured step{'s' if len(steps) > 1 else ''}"
    found = Corrected(source, planned, steps, fit(steps), memory_headroom(rows))
    written = text.rstrip("\n") + "\n" + section(found)
    try:
        parse_instance(written, f"{out} (not written)", out.parent)
    except InstanceError as error:
        if instance.resolve().parent == out.resolve().parent:
            raise
        raise PlannerError(f"{error}; or write --out beside {instance}") from None
    write_text(out, written)
    for line in summary(found):
        say(line)
    say(f"wrote {out}; next: hetplan solve {out}")
