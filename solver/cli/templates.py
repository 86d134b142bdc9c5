"""`templates`: the best pipeline template of every size, and why these sizes are enough."""

from pathlib import Path
from typing import Annotated

import typer

from formulations.node_sharing import NodeSplit
from solver.cli.files import check_writable, write_text
from solver.cli.recover import fleet_report
from solver.cli.search_options import (
    GapOption,
    InstanceArgument,
    JsonOption,
    StudyOption,
    gone,
    limit,
)
from solver.cli.terminal import print_report, say, steps_display
from solver.fleets.distribution import Distribution

#: Exit code where some size has no template within the limit.
NONE_IN_TIME = 4


FaultsOption = Annotated[
    int, typer.Option(min=0, max=10**6, help="Node failures to survive: f + 1 pipelines.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Write the fleet here: the fastest pipelines of these templates on all nodes, "
        "for recover.",
    ),
]
DistributionOption = Annotated[
    Distribution,
    typer.Option(
        help="Micro-batches of the fleet's pipelines. step-time: the slowest is as fast as can "
        "be. variance: their steps vary least, as in Oobleck."
    ),
]
ObjectiveOption = Annotated[
    str | None,
    gone(
        "--objective: templates are of least step time; Oobleck's objective is a benchmark, "
        "python -m bench templates"
    ),
]
SplitOption = Annotated[
    NodeSplit,
    typer.Option(
        help="How stages share a node. aligned: powers of two at multiples of themselves. "
        "any: all numbers of GPUs in every order, unless search.tensor_parallel narrows them."
    ),
]
MicroBatchOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10**8,
        help="Sequences per micro-batch. Unless given: of those with which fewest nodes hold the "
        "model, one that makes a fleet of that many nodes a pipeline step fast.",
    ),
]
MicroBatchesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10**4,
        help="Micro-batches of every pipeline. Unless given: its nodes' share of a step.",
    ),
]
TimeLimitOption = Annotated[
    float | None, limit("Time for all templates together; then the best so far, with bounds.")
]


def templates_command(
    instance: InstanceArgument,
    faults: FaultsOption = 1,
    out: OutOption = None,
    distribution: DistributionOption = "step-time",
    as_json: JsonOption = False,
    split: SplitOption = NodeSplit.ALIGNED,
    micro_batch: MicroBatchOption = None,
    micro_batches: MicroBatchesOption = None,
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    study: StudyOption = None,
    objective: ObjectiveOption = None,
) -> None:
    """Find the least number of nodes that holds the model, and the best template of every size.

    The sizes are Oobleck's: enough to run on every number of nodes, and to merge pipelines after
    failures. With several node groups there is one for every mix of a size.

    Exit code 0: templates; 2: bad input; 3: the cluster cannot run as many pipelines; 4: some size
    has no template within the limit.
    """
    from formulations.instance.load import load_instance
    from solver.cli.template_text import templates_text
    from solver.files import to_json
    from solver.fleets.designs import generator_for
    from solver.fleets.fleet import start_fleet
    from solver.fleets.template_document import templates_document
    from solver.study.store import study_at
    from solver.templates.generate import TemplateOptions

    options = TemplateOptions(
        split=split,
        micro_batch=micro_batch,
        micro_batches=micro_batches,
        gap=gap,
        time_limit_s=time_limit,
    )
    check_writable(out, keep=(instance, study))
    problem = load_instance(instance, fleets=True)
    with steps_display("templates") as show, study_at(study, problem) as kept:
        generator = generator_for(problem, options, faults, show, kept)
        document = templates_document(generator, faults)
    if generator.interrupted:
        say("interrupted", err=True)
    if as_json:
        say(document.model_dump_json(indent=1))
    else:
        print_report(templates_text(document))
    if out is not None and document.designs:
        fleet = start_fleet(
            problem, document.designs, faults, distribution=distribution, claims=document.claims
        )
        write_text(out, to_json(fleet))
        if not as_json:
            say("")
            print_report(fleet_report(fleet))
    if out is not None and not document.designs:
        say("no fleet is written: no template was found in time; raise --time-limit", err=True)
    if any(one.status == "unknown" for one in document.templates):
        raise typer.Exit(NONE_IN_TIME)
