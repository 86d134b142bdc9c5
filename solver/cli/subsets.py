"""`subsets`: which nodes of a cluster help, with the proof."""

from solver.cli.files import check_writable
from solver.cli.pareto import FrontOutOption, TimeLimitOption, search_family, show_front
from solver.cli.search_options import (
    AddressOption,
    EngineOption,
    GapOption,
    InstanceArgument,
    JsonOption,
    SeedOption,
    StudyOption,
    WorkersOption,
    num_workers,
)
from solver.options import SolveOptions


def subsets_command(
    instance: InstanceArgument,
    out: FrontOutOption = None,
    as_json: JsonOption = False,
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    study: StudyOption = None,
    engine: EngineOption = "processes",
    address: AddressOption = None,
) -> None:
    """Find the best subset of every size of the nodes of INSTANCE, and what each group brings.

    Where the nodes of a group are a range, of the most. Nodes that no plan needs are named.

    Exit code 0: plans; 2: bad input; 3: there is none; 4: none found within the limit.
    """
    from formulations.instance.load import load_family
    from solver.clusters.measure import TimeAndNodes

    check_writable(out, keep=(instance, study))
    family = load_family(instance)
    family = family.but(fewest=(0,) * len(family.fewest))
    count = num_workers(workers, engine, address)
    options = SolveOptions("exact", time_limit, gap, seed, count, None, engine, address)
    document = search_family(family, TimeAndNodes(family), options, study)
    show_front(document, out, None, as_json)
