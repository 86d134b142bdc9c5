"""The fewest template sizes for a range of node counts, proved, and what fewer sizes cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from formulations.coverage import Coverage, least_consecutive
from formulations.errors import PlannerError
from formulations.merging import worst_rebuilt
from formulations.models.cpsat import CpSat
from formulations.models.template_set import TemplateSet
from solver.backends import cpsat
from solver.options import SolveOptions
from solver.result import Status


class CoverageError(PlannerError):
    """Node counts that no set of sizes covers."""

    exit_code = 3


@dataclass(frozen=True)
class SizeSet:
    """Sizes that cover a range, ascending; `fewest`: no set with fewer does, by CP-SAT's proof."""

    sizes: tuple[int, ...]
    fewest: bool


def fewest_sizes(
    nodes: range, least_size: int, faults: int, options: SolveOptions | None = None
) -> SizeSet:
    """A set of fewest sizes >= n0 of which f + 1 or more add up to every count in `nodes`.

    Stopped early, the best set so far, at worst the consecutive sizes that cover. Raises
    CoverageError where a count is below (f + 1) n0.

    A range from (f + 1) n0 on is settled by its first n0 counts: only n0 makes the first, so n0 is
    in every set, and one more pipeline of n0 leads from each of these counts to all above.
    """
    first = (faults + 1) * least_size
    if not nodes or nodes[0] < first:
        raise CoverageError(
            f"{nodes[0] if nodes else 'no'} nodes cannot run {faults + 1} pipelines of "
            f"{least_size}; allowed: {first} nodes or more, or fewer faults"
        )
    known = range(least_size, least_size + least_consecutive(least_size, faults))
    settling = nodes[:least_size] if nodes[0] == first else nodes
    built = TemplateSet(CpSat(), settling, least_size, faults)
    built.hint(known)
    outcome = cpsat.run(built.model.native, options or SolveOptions())
    if outcome.values is None:
        return SizeSet(tuple(known), False)
    sizes = built.extract(outcome.values)
    assert not Coverage(sizes, faults, nodes[-1]).gaps(nodes[0])
    return SizeSet(sizes, outcome.status is Status.OPTIMAL)


def merging_range(least_size: int, faults: int, most: int) -> range:
    """Numbers of nodes, up to `most`, for which every way to run and to lose a node can be tried.

    Those with few pipelines to spare, where merging is hardest, and one node above the least.
    """
    first = (faults + 1) * least_size
    return range(first + 1, min(most, first + 2 * least_size + 8) + 1)


def worst_rebuilt_in(sizes: Sequence[int], faults: int, nodes: range) -> int | None:
    """Most pipelines that one failure takes apart, from any of these numbers of nodes.

    None without any number, or if a failure can leave a number of nodes that is not covered. Tries
    every way to run.
    """
    found = [worst_rebuilt(sizes, faults, number) for number in nodes]
    known = [one for one in found if one is not None]
    return max(known) if known and len(known) == len(found) else None
