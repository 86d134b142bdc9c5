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

from formulations.errors import NoPlanError
from formulations.fleet import Pipeline, Template
from formulations.pipelines import InstantiationProblem, PipelineKind
from solver.fleets.distribution import shortest
from solver.fleets.instantiate import Choice, choice, instantiate, listed, suffices
from solver.fleets.node_assignment import NodeAssigner, NodeAssignment, Situation
from solver.interrupt import NoTimeError, TimeUp, time_up_after

#: (Fleets with nodes) x (nodes)^2; beyond, the bound says how much better another one may be.
ASSIGNMENT_WORK = 300_000
LEAST_ASSIGNED = 3


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
    assignment: NodeAssignment
    faults: int
    step_ns: int
    steps: Fraction
    bound: Fraction
    goes_on: bool = False


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
    stay idle where that is better. kinds: what each template is worth. Raises NoPlanError if no
    template fits, NoTimeError if no fleet was found within the limit.
    """
    groups = range(max(map(len, (kind.nodes for kind in kinds))))
    available = tuple(sum(situation.groups[n] == j for n in situation.ready) for j in groups)
    asked = InstantiationProblem(tuple(kinds), available, faults, micro_batches, all_nodes=False)
    # As many faults as the nodes can survive.
    lowered = (replace(asked, faults=fewer) for fewer in range(faults, -1, -1))
    problem = next((fewer for fewer in lowered if instantiate(fewer) is not None), None)
    if problem is None:
        fewest = min(sum(kind.nodes) for kind in kinds)
        raise NoPlanError(
            f"nodes: {sum(available)} left, which no template fits with all {micro_batches} "
            f"micro-batches of a step; allowed: {fewest} nodes or more, such as hold the model"
        )
    best: Recovery | None = None
    try:
        with time_up_after(time_limit_s):
            for recovery in _FleetSearch(situation, templates, problem, horizon).better():
                best = recovery
    except TimeUp:
        if best is None:
            late = "no recovery found within the limit; raise --time-limit"
            raise NoTimeError(late) from None
    assert best is not None
    return best


@dataclass(frozen=True)
class _FleetSearch:
    """Fleets by ascending step, until none that is left can train more."""

    situation: Situation
    templates: Sequence[Template]
    problem: InstantiationProblem
    horizon: Horizon

    def better(self) -> Iterator[Recovery]:
        """Ever better fleets, with ever lower bounds on all fleets."""
        problem, horizon = self.problem, self.horizon
        shortest_step = instantiate(problem)
        assert shortest_step is not None
        least_ns = shortest_step.step_ns(problem)
        best: Recovery | None = None
        starts = list[Recovery]()
        for recovery in self._starts(shortest_step.counts):
            starts.append(recovery)
            best = max(starts, key=lambda r: (r.steps, r.goes_on, -r.assignment.transfer_ns))
            yield _bounded(best, horizon.steps(least_ns, 0))
        assert best is not None
        # No fleet with a longer step trains more: T steps in (H - restart) / T at most.
        longest_ns = int(horizon.steps(1, 0) / best.steps) if best.steps else None
        fleets, missing_ns = listed(problem, longest_ns, least_ns)
        bound = best.steps if missing_ns is None else horizon.steps(missing_ns, 0)
        limit = max(LEAST_ASSIGNED, ASSIGNMENT_WORK // len(self.situation.ready) ** 2)
        for n, fleet in enumerate(fleets):
            above = horizon.steps(fleet.step_ns, 0)
            if above <= best.steps:
                break
            yield _bounded(best, max(bound, above))
            if n == limit:
                return
            nodes = self._nodes(fleet.counts)
            above = horizon.steps(fleet.step_ns, nodes.least_receiving_ns)
            if above > best.steps:
                bound = max(bound, above)
                best = max(best, self._recovery(fleet, nodes), key=lambda recovery: recovery.steps)
        yield _bounded(best, bound)

    def _starts(self, counts: tuple[int, ...]) -> Iterator[Recovery]:
        """The fleet that goes on, the one of these numbers, those of the survivors."""
        before, ready = self.situation.before, set(self.situation.ready)
        intact = [pipeline for pipeline in before if ready.issuperset(pipeline.nodes)]
        templates = [pipeline.template for pipeline in intact]
        survivors = tuple(map(templates.count, self.templates))
        fleets = [counts]
        if sum(survivors) == len(intact):  # all are of these templates
            if len(intact) == len(before):
                yield from self._as_it_is(survivors)
            # All that will do of the intact pipelines, and of one kind on the free nodes
            ready.difference_update(node for pipeline in intact for node in pipeline.nodes)
            groups = [self.situation.groups[node] for node in ready]
            available = tuple(map(groups.count, range(len(self.problem.available))))
            rest = replace(self.problem, available=available)
            more = (
                (*survivors[:i], count + rest.most(i), *survivors[i + 1 :])
                for i, count in enumerate(survivors)
            )
            fleets += (fleet for fleet in (survivors, *more) if suffices(self.problem, fleet))
        for fleet in dict.fromkeys(fleets):
            yield self._recovery(choice(self.problem, fleet), self._nodes(fleet))

    def _as_it_is(self, counts: tuple[int, ...]) -> Iterator[Recovery]:
        """The fleet before, of so many pipelines per kind, all of them intact, if it is enough."""
        before, problem = self.situation.before, self.problem
        total = sum(pipeline.micro_batches for pipeline in before)
        if total != problem.micro_batches or len(before) <= problem.faults:
            return
        times = {t: kind.times_ns for t, kind in zip(self.templates, problem.kinds, strict=True)}
        slowest_ns = max(times[p.template][p.micro_batches - 1] for p in before)
        step_ns = slowest_ns + problem.slowest_exchange_ns(counts)
        steps = Fraction(self.horizon.time_ns, max(step_ns, 1))
        stays = NodeAssignment(tuple(pipeline.nodes for pipeline in before), (), 0)
        yield Recovery(before, stays, problem.faults, step_ns, steps, bound=steps, goes_on=True)

    def _nodes(self, counts: Sequence[int]) -> NodeAssigner:
        return NodeAssigner(self.situation, [self.templates[i] for i in _each(counts)])

    def _recovery(self, fleet: Choice, nodes: NodeAssigner) -> Recovery:
        assignment, each = nodes.best(), _each(fleet.counts)
        times = [self.problem.kinds[i].times_ns for i in each]
        shares = shortest(times, self.problem.micro_batches)
        templates = (self.templates[i] for i in each)
        pipelines = tuple(map(Pipeline, templates, assignment.nodes, shares))
        steps = self.horizon.steps(fleet.step_ns, assignment.transfer_ns)
        faults = self.problem.faults
        return Recovery(pipelines, assignment, faults, fleet.step_ns, steps, bound=steps)


def _each(counts: Sequence[int]) -> list[int]:
    return [kind for kind, count in enumerate(counts) for _ in range(count)]


def _bounded(recovery: Recovery, bound: Fraction) -> Recovery:
    """The recovery, where no other one trains more than `bound`."""
    return replace(recovery, bound=max(recovery.steps, bound))
