"""The next fleet after nodes are lost or join: most steps within a horizon.

Whatever the fleet, training stands still while layers are copied, and then every step takes as
long as its slowest pipeline. With a horizon H, a fixed restart time and a transfer of R, a fleet
with step T trains (H - restart - R) / T steps. A fast fleet that moves much may lose against a
slower one close to what is left. Where all pipelines are whole, they can also go on as they are:
that is H / T steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

from formulations.errors import PlannerError
from formulations.fleet import Pipeline
from formulations.pipelines import InstantiationProblem, PipelineKind
from formulations.template import Template
from solver.fleets.distribution import shortest
from solver.fleets.instantiate import instantiate
from solver.fleets.seats import Seating, Seats, Situation
from solver.interrupt import NoTimeError, TimeUp, time_up_after

#: Fleets that are listed, and (seated fleets) x (nodes)^2, as seating takes longer; beyond, the
#: bound says how much better another one may be.
MOST_LISTED = 5000
SEATING_WORK = 300_000
LEAST_SEATED = 3


class RecoveryError(PlannerError):
    """No fleet can be formed from the nodes that are left."""

    exit_code = 3


@dataclass(frozen=True)
class Horizon:
    """Time until the next failure is expected, and what every recovery takes but the copies."""

    time_ns: int
    restart_ns: int = 0

    def steps(self, step_ns: int, transfer_ns: int) -> Fraction:
        """Steps trained within the horizon; 0 where recovery takes longer than that."""
        return Fraction(max(0, self.time_ns - self.restart_ns - transfer_ns), max(step_ns, 1))


@dataclass(frozen=True)
class Recovery:
    """The next fleet. faults: failures that it survives for certain.

    step_ns: of its slowest pipeline, and the exchange of gradients. steps: trained within the
    horizon; bound: no fleet that survives as many faults trains more. goes_on: the pipelines are
    those before, with their micro-batches, so that nothing starts again.
    """

    pipelines: tuple[Pipeline, ...]
    seating: Seating
    faults: int
    step_ns: int
    steps: Fraction
    bound: Fraction
    goes_on: bool = False

    @property
    def gap(self) -> float:
        """Largest relative distance to the best fleet."""
        return float((self.bound - self.steps) / self.bound) if self.bound > 0 else 0.0


@dataclass(frozen=True)
class _Fleet:
    """Numbers of pipelines per kind, and the step with the micro-batches shared out."""

    counts: tuple[int, ...]
    step_ns: int


def recover(
    situation: Situation,
    templates: Sequence[Template],
    kinds: Sequence[PipelineKind],
    faults: int,
    micro_batches: int,
    horizon: Horizon,
    time_limit_s: float | None = None,
) -> Recovery:
    """The fleet with most steps in the horizon, on the nodes that are ready.

    It survives `faults` failures if the nodes allow it, and else as many as they do; nodes may
    stay idle where that is better. kinds: what each template is worth. Raises RecoveryError if no
    template fits, NoTimeError if no fleet was found within the limit.
    """
    groups = range(max(map(len, (kind.nodes for kind in kinds))))
    available = tuple(sum(situation.groups[n] == j for n in situation.ready) for j in groups)
    problem = InstantiationProblem(tuple(kinds), available, faults, micro_batches, all_nodes=False)
    search = _Search(situation, templates, _tolerable(problem), horizon, time_limit_s)
    return search.best()


def _tolerable(problem: InstantiationProblem) -> InstantiationProblem:
    """The problem with as many faults as its nodes can survive. Raises RecoveryError."""
    for faults in range(problem.faults, -1, -1):
        lowered = replace(problem, faults=faults)
        if instantiate(lowered) is not None:
            return lowered
    least = min(sum(kind.nodes) for kind in problem.kinds)
    raise RecoveryError(
        f"nodes: {sum(problem.available)} left, which no template fits with all "
        f"{problem.micro_batches} micro-batches of a step; allowed: {least} nodes or more, such as "
        "hold the model"
    )


class _Search:
    """Fleets by ascending step, until none that is left can train more."""

    def __init__(
        self,
        situation: Situation,
        templates: Sequence[Template],
        problem: InstantiationProblem,
        horizon: Horizon,
        limit_s: float | None,
    ) -> None:
        self._situation = situation
        self._templates = templates
        self._problem = problem
        self._horizon = horizon
        self._limit_s = limit_s

    def best(self) -> Recovery:
        """The best fleet found, with a bound on all fleets."""
        known: Recovery | None = None
        try:
            with time_up_after(self._limit_s):
                for one in self._better():
                    known = one
        except TimeUp:
            if known is None:
                late = "no recovery found within the limit; raise --time-limit"
                raise NoTimeError(late) from None
        assert known is not None
        return known

    def _better(self) -> Iterator[Recovery]:
        """Ever better fleets, with ever lower bounds on all fleets."""
        first = instantiate(self._problem)
        assert first is not None
        least_ns = first.step_ns(self._problem)
        best: Recovery | None = None
        for one in self._starts(first.counts):
            best = one if best is None else max(best, one, key=_worth)
            yield _bounded(best, self._horizon.steps(least_ns, 0))
        assert best is not None
        fleets, bound = self._worth_a_look(best, least_ns)
        most_seated = max(LEAST_SEATED, SEATING_WORK // len(self._situation.ready) ** 2)
        for n, fleet in enumerate(fleets):
            above = self._horizon.steps(fleet.step_ns, 0)
            if above <= best.steps:
                break
            yield _bounded(best, max(bound, above))
            if n == most_seated:
                return
            seats = self._seats(fleet)
            most = self._horizon.steps(fleet.step_ns, seats.least_receiving_ns)
            if most > best.steps:
                bound = max(bound, most)
                best = max(best, self._recovery(fleet, seats), key=lambda one: one.steps)
        yield _bounded(best, bound)

    def _starts(self, counts: tuple[int, ...]) -> Iterator[Recovery]:
        """The fleet that goes on, the one of these numbers, those of the survivors."""
        yield from self._as_it_is()
        for own in dict.fromkeys((counts, *self._survivors())):
            fleet = self._fleet(own, self._problem.latest_ns)
            yield self._recovery(fleet, self._seats(fleet))

    def _as_it_is(self) -> Iterator[Recovery]:
        """The fleet that goes on, if all its pipelines are whole and enough."""
        old, ready, problem = self._situation.old, set(self._situation.ready), self._problem
        counts = tuple(sum(one.template == own for one in old) for own in self._templates)
        whole = all(ready.issuperset(one.nodes) for one in old) and sum(counts) == len(old)
        total = sum(one.micro_batches for one in old)
        if not whole or total != problem.micro_batches or len(old) <= problem.faults:
            return
        times = {t: kind.times_ns for t, kind in zip(self._templates, problem.kinds, strict=True)}
        slowest = max(times[one.template][one.micro_batches - 1] for one in old)
        step_ns = slowest + problem.slowest_exchange_ns(counts)
        steps = Fraction(self._horizon.time_ns, max(step_ns, 1))
        seating = Seating(tuple(one.nodes for one in old), (), 0)
        yield Recovery(old, seating, problem.faults, step_ns, steps, bound=steps, goes_on=True)

    def _survivors(self) -> Iterator[tuple[int, ...]]:
        """Fleets that will do with all pipelines that are whole, and of one kind beside them."""
        ready, problem = set(self._situation.ready), self._problem
        whole = [one for one in self._situation.old if ready.issuperset(one.nodes)]
        ready.difference_update(node for one in whole for node in one.nodes)
        counts = [sum(one.template == own for one in whole) for own in self._templates]
        if sum(counts) < len(whole):
            return
        groups = [self._situation.groups[node] for node in ready]
        left = replace(
            problem, available=tuple(groups.count(j) for j in range(len(problem.available)))
        )
        for i in range(len(counts)):
            fleet = (*counts[:i], counts[i] + left.most(i), *counts[i + 1 :])
            for chosen in dict.fromkeys((tuple(counts), fleet)):
                if self._will_do(chosen):
                    yield chosen

    def _will_do(self, counts: Sequence[int]) -> bool:
        """Whether so many pipelines per kind take all micro-batches and survive the faults."""
        used = [(k, n) for k, n in zip(self._problem.kinds, counts, strict=True) if n]
        room = sum(n * len(kind.times_ns) for kind, n in used)
        able = all(kind.times_ns for kind, _ in used)
        total = self._problem.micro_batches
        return able and self._problem.faults < sum(counts) <= total <= room

    def _worth_a_look(self, best: Recovery, least_ns: int) -> tuple[list[_Fleet], Fraction]:
        """Fleets that may train more than `best`, by step, and a bound on those left out.

        A fleet with step T trains at most (H - restart) / T steps, so T is bounded, and so is the
        step of its pipelines, less the least that an exchange takes. If there are too many up to
        that, those with the shortest steps are listed.
        """
        exchange_ns = _least_exchange_ns(self._problem)
        longest = self._problem.latest_ns
        if best.steps:
            longest = int(self._horizon.steps(1, 0) / best.steps) - exchange_ns
        bound = best.steps
        while True:
            found = list(islice(_fleets(self._problem, longest), MOST_LISTED + 1))
            if len(found) <= MOST_LISTED or longest <= least_ns - exchange_ns:
                break
            longest = (longest + least_ns - exchange_ns) // 2
            bound = self._horizon.steps(longest + exchange_ns + 1, 0)
        if len(found) > MOST_LISTED:
            bound = self._horizon.steps(least_ns, 0)
        fleets = (self._fleet(counts, longest) for counts in found)
        return sorted(fleets, key=lambda one: one.step_ns), bound

    def _fleet(self, counts: tuple[int, ...], longest_ns: int) -> _Fleet:
        """The fleet with its step, as `distribution.shortest`, and exchange.

        longest_ns: long enough for its pipelines.
        """
        pairs = zip(self._problem.kinds, counts, strict=True)
        used = [(kind, count) for kind, count in pairs if count]
        low = max(kind.times_ns[0] for kind, _ in used)
        high = longest_ns
        while low < high:
            middle = (low + high) // 2
            if sum(n * kind.capacity(middle) for kind, n in used) >= self._problem.micro_batches:
                high = middle
            else:
                low = middle + 1
        return _Fleet(counts, low + self._problem.slowest_exchange_ns(counts))

    def _times(self, counts: Sequence[int]) -> list[Sequence[int]]:
        pairs = zip(self._problem.kinds, counts, strict=True)
        return [kind.times_ns for kind, count in pairs for _ in range(count)]

    def _chosen(self, fleet: _Fleet) -> list[Template]:
        pairs = zip(self._templates, fleet.counts, strict=True)
        return [template for template, count in pairs for _ in range(count)]

    def _seats(self, fleet: _Fleet) -> Seats:
        return Seats(self._situation, self._chosen(fleet))

    def _recovery(self, fleet: _Fleet, seats: Seats) -> Recovery:
        seating = seats.seated()
        shares = shortest(self._times(fleet.counts), self._problem.micro_batches)
        parts = zip(self._chosen(fleet), seating.nodes, shares, strict=True)
        pipelines = tuple(Pipeline(*part) for part in parts)
        steps = self._horizon.steps(fleet.step_ns, seating.transfer_ns)
        return Recovery(pipelines, seating, self._problem.faults, fleet.step_ns, steps, bound=steps)


def _bounded(one: Recovery, bound: Fraction) -> Recovery:
    """The recovery, where no other one trains more than `bound`."""
    return replace(one, bound=max(one.steps, bound))


def _worth(one: Recovery) -> tuple[Fraction, bool, int]:
    """Larger for what is rather taken of starts."""
    return one.steps, one.goes_on, -one.seating.transfer_ns


def _least_exchange_ns(problem: InstantiationProblem) -> int:
    """No fleet exchanges gradients in less time."""
    numbers = range(problem.faults + 1, problem.most_pipelines + 1)
    times = (kind.exchange_ns(x) for kind in problem.kinds for x in numbers)
    return min(times, default=0)


def _fleets(problem: InstantiationProblem, step_ns: int) -> Iterator[tuple[int, ...]]:
    """Numbers of pipelines per kind of all fleets whose pipelines step in at most `step_ns`.

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
