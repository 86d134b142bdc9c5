"""What fleets there are to choose from: sets of template sizes, pipelines, shares of a step.

Oobleck takes the fewest sizes that cover every number of nodes, and of all ways to start pipelines
of them the one with most throughput (Jang et al., SOSP 2023, sections 4.1 and 4.2).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress, islice
from statistics import pstdev
from typing import Annotated

from pydantic import Field

from formulations.coverage import divided
from formulations.errors import NoPlanError
from formulations.fleet import Design
from formulations.instance import Instance
from formulations.instance.record import Record
from formulations.pipelines import InstantiationProblem
from formulations.units import seconds
from solver.fleets.distribution import Distribution, Times, least_variance, shortest
from solver.fleets.fleet import starting
from solver.fleets.instantiate import Choice, instantiate, listed
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
    problem, best = starting(instance, designs, kinds_of(instance, designs), faults)
    batch, least_ns = instance.workload.global_batch, best.step_ns(problem)
    every, missing_ns = listed(problem, int(_LONGEST * least_ns), least_ns)
    options = [option for option in every if option.step_ns <= _LONGEST * least_ns]
    return FleetChoices(
        sets=tuple(_set_of(problem, batch, *named) for named in size_sets.items() if named[0]),
        options=tuple(_option(problem, batch, option) for option in options[:MOST_OPTIONS]),
        number=len(options) if missing_ns is None else None,
        shares=tuple(_shares(problem, best.counts)),
    )


def _set_of(
    problem: InstantiationProblem, batch: int, sizes: tuple[int, ...], name: str
) -> SizeSet:
    """Templates of these sizes alone, and of mixes of fewer nodes that hold the model, too."""
    numbers = (sum(kind.nodes) for kind in problem.kinds)
    usable = [number in sizes or number < min(sizes) for number in numbers]
    kinds = tuple(compress(problem.kinds, usable))

    def rate(available: tuple[int, ...]) -> float | None:
        for survived in range(problem.faults, -1, -1):  # fewer where too few nodes are left
            chosen = replace(problem, kinds=kinds, available=available, faults=survived)
            if kinds and (fleet := instantiate(chosen)) is not None:
                return batch / seconds(fleet.step_ns(chosen))
        return None

    # Failures by group, whichever they hit
    losses = list(islice(divided(problem.faults, problem.available), _MOST_LOSSES + 1))
    nodes_left = [tuple(map(int.__sub__, problem.available, lost)) for lost in losses]
    rates = [rate(nodes) for nodes in nodes_left] if len(losses) <= _MOST_LOSSES else [None]
    after = None if None in rates else min(filter(None, rates), default=None)
    now = rate(problem.available)
    return SizeSet(name=name, sizes=sizes, sequences_per_s=now, after_faults_sequences_per_s=after)


def _option(problem: InstantiationProblem, batch: int, option: Choice) -> Option:
    pairs = zip(problem.kinds, option.counts, strict=True)
    step_s = seconds(option.step_ns)
    return Option(
        pipelines=tuple((kind.nodes, count) for kind, count in pairs if count),
        step_time_s=step_s,
        sequences_per_s=batch / step_s,
    )


def _shares(problem: InstantiationProblem, counts: Sequence[int]) -> Iterator[Shares]:
    """Of so many pipelines per kind, by either distribution."""
    times = [
        kind.times_ns
        for kind, count in zip(problem.kinds, counts, strict=True)
        for _ in range(count)
    ]
    ways: dict[Distribution, Callable[[Sequence[Times], int], tuple[int, ...]]] = {
        "step-time": shortest,
        "variance": least_variance,
    }
    for name, share_out in ways.items():
        shares = zip(times, share_out(times, problem.micro_batches), strict=True)
        taken = [seconds(row[m - 1]) for row, m in shares]
        yield Shares(distribution=name, slowest_s=max(taken), deviation_s=pstdev(taken))
