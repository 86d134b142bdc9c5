"""Numbers of pipelines per kind: which there are, and how long a step with them takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from formulations.pipelines import InstantiationProblem

#: Choices that are listed.
MOST_LISTED = 5000


@dataclass(frozen=True)
class Choice:
    """Pipelines per kind, and the step with the micro-batches shared out best."""

    counts: tuple[int, ...]
    step_ns: int


def choice(
    problem: InstantiationProblem, counts: tuple[int, ...], longest_ns: int | None = None
) -> Choice:
    """The choice with its step, as `distribution.shortest`, and exchange.

    longest_ns: long enough for its pipelines; None for what is always.
    """
    used = [(kind, n) for kind, n in zip(problem.kinds, counts, strict=True) if n]
    low = max(kind.times_ns[0] for kind, _ in used)
    high = problem.latest_ns if longest_ns is None else longest_ns
    while low < high:
        middle = (low + high) // 2
        if sum(n * kind.capacity(middle) for kind, n in used) >= problem.micro_batches:
            high = middle
        else:
            low = middle + 1
    return Choice(counts, low + problem.slowest_exchange_ns(counts))


def suffices(problem: InstantiationProblem, counts: Sequence[int]) -> bool:
    """Whether so many pipelines per kind take all micro-batches and survive the faults."""
    used = [(kind, n) for kind, n in zip(problem.kinds, counts, strict=True) if n]
    room = sum(n * len(kind.times_ns) for kind, n in used)
    able = all(kind.times_ns for kind, _ in used)
    return able and problem.faults < sum(counts) <= problem.micro_batches <= room


def listed(
    problem: InstantiationProblem, longest_ns: int | None, least_ns: int
) -> tuple[list[Choice], int | None]:
    """Choices by their steps, and the step from which some may be missing; None: all are listed.

    longest_ns: steps of interest; None for all. least_ns: the least of all choices. If there are
    too many, those with the shortest steps are listed.
    """
    exchange_ns = _least_exchange_ns(problem)
    longest = problem.latest_ns if longest_ns is None else longest_ns - exchange_ns
    missing_ns = None
    while True:
        found = list(islice(_within(problem, longest), MOST_LISTED + 1))
        if len(found) <= MOST_LISTED or longest <= least_ns - exchange_ns:
            break
        longest = (longest + least_ns - exchange_ns) // 2
        missing_ns = longest + exchange_ns + 1
    if len(found) > MOST_LISTED:
        missing_ns = least_ns
    choices = (choice(problem, counts, longest) for counts in found)
    return sorted(choices, key=lambda one: one.step_ns), missing_ns


def _least_exchange_ns(problem: InstantiationProblem) -> int:
    """No fleet exchanges gradients in less time."""
    numbers = range(problem.faults + 1, problem.most_pipelines + 1)
    times = (kind.exchange_ns(x) for kind in problem.kinds for x in numbers)
    return min(times, default=0)


def _within(problem: InstantiationProblem, step_ns: int) -> Iterator[tuple[int, ...]]:
    """All whose pipelines step in at most `step_ns`.

    Depth first over the kinds, those with most micro-batches per node first. A branch is left when
    the rest of the nodes at the best rate of the kinds to come cannot take the micro-batches left,
    or not enough pipelines fit.
    """
    capacities = [kind.capacity(step_ns) for kind in problem.kinds]
    able = [i for i, capacity in enumerate(capacities) if capacity]
    rate = {i: Fraction(capacities[i], sum(problem.kinds[i].nodes)) for i in able}
    able.sort(key=lambda i: (-rate[i], i))
    counts = [0] * len(problem.kinds)

    def choices(at: int, left: tuple[int, ...], wanted: int, pipelines: int) -> Iterator[None]:
        rest = sum(left)
        if at == len(able):
            if wanted <= 0 and problem.faults < pipelines <= problem.micro_batches:
                yield
            return
        sizes = [sum(problem.kinds[i].nodes) for i in able[at:]]
        if wanted > rest * rate[able[at]] or pipelines + rest // min(sizes) <= problem.faults:
            return
        i = able[at]
        needed = problem.kinds[i].nodes
        most = min(have // n for have, n in zip(left, needed, strict=True) if n)
        for count in range(most, -1, -1):
            counts[i] = count
            after = tuple(have - count * n for have, n in zip(left, needed, strict=True))
            yield from choices(at + 1, after, wanted - count * capacities[i], pipelines + count)
        counts[i] = 0

    for _ in choices(0, problem.available, problem.micro_batches, 0):
        yield tuple(counts)
