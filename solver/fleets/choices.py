"""What fleets there are to choose from: sets of template sizes, pipelines, shares of a step.

Oobleck takes the fewest sizes that cover every number of nodes, and of all ways to start pipelines
of them the one with most throughput (Jang et al., SOSP 2023, sections 4.1 and 4.2).
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import pstdev
from typing import Annotated

from pydantic import Field

from formulations.errors import NoPlanError
from formulations.fleet import Design
from formulations.instance import Instance
from formulations.instance.record import Record
from formulations.pipelines import InstantiationProblem
from formulations.units import seconds
from solver.fleets.distribution import Distribution, least_variance, shortest
from solver.fleets.fleet import starting
from solver.fleets.instantiate import instantiate, listed
from solver.fleets.step_times import kinds_of

#: Instantiations that are told.
MOST_OPTIONS = 5
#: Steps of interest, as a multiple of the shortest.
_LONGEST = 1.25
#: Mixes of failed nodes that are looked at for a set of sizes.
_MOST_LOSSES = 100

Rate = Annotated[float, Field(ge=0.0)]


class SizeSet(Record):
    """Sequences/s of the best fleet of templates of these sizes; None: there is none.

    after_faults: with the fewest that it has after as many failures as are to be survived, whatever
    nodes they take; None where these are too many to look at, too.
    """

    name: str
    sizes: tuple[int, ...]
    sequences_per_s: Rate | None
    after_faults_sequences_per_s: Rate | None


class Option(Record):
    """Pipelines side by side: of every template used, its nodes per group, and how many."""

    pipelines: tuple[tuple[tuple[int, ...], int], ...]
    step_time_s: float
    sequences_per_s: Rate


class Shares(Record):
    """How micro-batches are shared out: slowest pipeline, and standard deviation of all steps."""

    distribution: Distribution
    slowest_s: float
    deviation_s: float


class FleetChoices(Record):
    """Sets of sizes; instantiations of all templates by their steps, the shortest ones; shares.

    Each set's figures are those of its best fleet, as by `instantiate`, which is exact. number: of
    instantiations whose step is at most _LONGEST of the shortest; None where not all are listed.
    """

    sets: tuple[SizeSet, ...]
    options: tuple[Option, ...]
    number: int | None
    shares: tuple[Shares, ...]


def fleet_choices(
    instance: Instance,
    designs: Sequence[Design],
    faults: int,
    size_sets: Mapping[tuple[int, ...], str],
) -> FleetChoices:
    """Of templates that were found; size_sets: names by sizes.

    Raises NoPlanError where they make no fleet, PlannerError as `instantiate`.
    """
    if not designs:
        raise NoPlanError("templates: none was found")
    kinds = kinds_of(instance, designs)
    problem, best = starting(instance, designs, kinds, faults)
    batch = instance.workload.global_batch

    def rate(sizes: Sequence[int], available: tuple[int, ...]) -> float | None:
        # Templates of fewer nodes than the least size are of mixes that hold the model all the same
        fitting = tuple(k for k in kinds if sum(k.nodes) in sizes or sum(k.nodes) < min(sizes))
        for survived in range(faults, -1, -1):  # fewer pipelines where too few nodes are left
            chosen = InstantiationProblem(
                fitting, available, survived, problem.micro_batches, all_nodes=False
            )
            if fitting and (fleet := instantiate(chosen)) is not None:
                return batch / seconds(fleet.step_ns(chosen))
        return None

    def after(sizes: Sequence[int]) -> float | None:
        losses = list(_losses(problem.available, faults))
        if len(losses) > _MOST_LOSSES:
            return None
        rates = [rate(sizes, nodes_left) for nodes_left in losses]
        return None if None in rates else min(filter(None, rates), default=None)

    least_ns = best.step_ns(problem)
    every, missing_ns = listed(problem, int(_LONGEST * least_ns), least_ns)
    options = [option for option in every if option.step_ns <= _LONGEST * least_ns]
    each = [i for i, count in enumerate(best.counts) for _ in range(count)]
    times = [kinds[i].times_ns for i in each]
    shares: dict[Distribution, tuple[int, ...]] = {
        "step-time": shortest(times, problem.micro_batches),
        "variance": least_variance(times, problem.micro_batches),
    }
    steps = {
        name: [seconds(row[m - 1]) for row, m in zip(times, shared, strict=True)]
        for name, shared in shares.items()
    }
    return FleetChoices(
        sets=tuple(
            SizeSet(
                name=name,
                sizes=sizes,
                sequences_per_s=rate(sizes, problem.available),
                after_faults_sequences_per_s=after(sizes),
            )
            for sizes, name in size_sets.items()
            if sizes
        ),
        options=tuple(
            Option(
                pipelines=tuple(
                    (kind.nodes, count)
                    for kind, count in zip(kinds, option.counts, strict=True)
                    if count
                ),
                step_time_s=seconds(option.step_ns),
                sequences_per_s=batch / seconds(option.step_ns),
            )
            for option in options[:MOST_OPTIONS]
        ),
        number=len(options) if missing_ns is None else None,
        shares=tuple(
            Shares(distribution=name, slowest_s=max(taken), deviation_s=pstdev(taken))
            for name, taken in steps.items()
        ),
    )


def _losses(available: tuple[int, ...], faults: int) -> Iterator[tuple[int, ...]]:
    """Nodes per group that are left after so many failures, whichever groups they hit."""
    if not available:
        if not faults:
            yield ()
        return
    for failed in range(min(available[0], faults) + 1):
        for rest in _losses(available[1:], faults - failed):
            yield (available[0] - failed, *rest)
