"""The best template of every size of an instance, under either objective."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

from formulations.costs.template_costs import template_costs
from formulations.errors import PlannerError
from formulations.fleet import Strategy
from formulations.instance import Instance
from formulations.template import Template
from formulations.units import ceil_div
from solver.enumeration.enumerate import below
from solver.enumeration.problem import INFINITY
from solver.resilience.chains import Counts
from solver.resilience.graph import TemplateGraph
from solver.resilience.oobleck import oobleck_in_memory, oobleck_templates
from solver.resilience.outcome import TemplateOutcome
from solver.resilience.places import PlaceCosts, place_costs, strategies
from solver.resilience.stage_bounds import stage_bounds
from solver.resilience.step_time import StepTimeSearch, starts
from solver.resilience.template_options import TemplateObjective, TemplateOptions
from solver.result import Status
from solver.search.shapes import micro_batches
from solver.simulate import pipeline_step_ns

#: Share of the time that one candidate for the micro-batch size may take.
CHOICE_SHARE = 0.1


class NoTemplateError(PlannerError):
    """No template fits the cluster, or not as many as asked for."""

    exit_code = 3


@dataclass(frozen=True)
class TemplateResult:
    """What is known of one size, or one mix of nodes.

    outcome: value and bound in ns, of the objective. step_ns: simulated step of the template with
    `micro_batches`. strategy: that of the template. Both None without a template.
    """

    nodes: int
    micro_batches: int
    outcome: TemplateOutcome
    strategy: Strategy | None
    step_ns: int | None
    status: Status

    @property
    def gap(self) -> float | None:
        """Distance of the bound to the value, relative to the value."""
        value = self.outcome.value
        return None if value is None else 1 - self.outcome.bound / value


Finals = Sequence[Counts]


class TemplateGenerator:
    """Templates of one instance.

    Of its search space, the degrees of data and pipeline parallelism, idle nodes and the
    distributed optimizer are choices of whole plans and not looked at.
    """

    def __init__(
        self,
        instance: Instance,
        options: TemplateOptions,
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """`report` is told how many templates of how many are done.

        Raises PlannerError: a micro-batch that divides no step; tied embeddings in zones.
        """
        cluster = instance.cluster
        if cluster.zone_link is not None and any(x.tied_copy for x in instance.workload.layers):
            raise PlannerError(
                "cluster.zone_link: templates with tied embeddings in several zones; allowed: "
                "one zone, or a workload whose head has a matrix of its own"
            )
        b, batch = options.micro_batch, instance.workload.global_batch
        if b is not None and batch % b:
            raise PlannerError(
                f"--micro-batch {b}: does not divide the global batch of {batch}; allowed: "
                f"divisors of {batch}"
            )
        self.instance, self.options, self._report = instance, options, report
        self.interrupted = False
        self._costs: dict[Strategy, PlaceCosts] = {}

    @cached_property
    def available(self) -> Counts:
        """Nodes of every group."""
        return tuple(group.nodes for group in self.instance.cluster.groups)

    def mixes(self, nodes: int) -> list[Counts]:
        """All ways to take so many of the cluster's nodes, by node group."""
        return list(_mixes(self.available, nodes))

    @cached_property
    def micro_batch(self) -> int:
        """Sequences per micro-batch: as asked for, or the best of those that the instance allows.

        That is, of those that need fewest nodes, the one whose template of that size trains a
        sequence soonest. Raises NoTemplateError where no template fits.
        """
        if self.options.micro_batch is not None:
            return self.options.micro_batch
        needed = {b: self._least_nodes(b) for b in micro_batches(self.instance)}
        fewest = min((n for n in needed.values() if n is not None), default=None)
        if fewest is None:
            raise NoTemplateError(self.too_small)
        fitting = [b for b, n in needed.items() if n == fewest]
        return min(fitting, key=lambda b: self._per_sequence(fewest, b))

    def _per_sequence(self, nodes: int, b: int) -> float:
        """Nanoseconds per sequence of the best template; only the comparison matters."""
        if len(micro_batches(self.instance)) == 1:
            return 0.0
        end_s, limit_s = self._end_s, self.options.time_limit_s
        if end_s is not None and limit_s is not None:
            end_s = min(end_s, perf_counter() + limit_s * CHOICE_SHARE)
        found = self._best({nodes: self.mixes(nodes)}, b, end_s)[nodes]
        value = found.step_ns
        return float("inf") if value is None else value / (found.micro_batches * b)

    def micro_batches(self, nodes: int, micro_batch: int) -> int:
        """Micro-batches of a template: as asked for, or its nodes' share of a step, rounded up."""
        if self.options.micro_batches is not None:
            return self.options.micro_batches
        sequences = self.instance.workload.global_batch * nodes
        return ceil_div(sequences, sum(self.available) * micro_batch)

    @property
    def too_small(self) -> str:
        """What to say where no number of nodes is enough."""
        total = sum(self.available)
        return (
            f"cluster: no template fits into the memory of its nodes, not of all {total}; allowed: "
            "more nodes, GPUs with more memory, smaller micro-batches, full recomputation"
        )

    @cached_property
    def least_nodes(self) -> int | None:
        """n0: the fewest nodes of which every choice holds the model; None if all are too few."""
        return self._least_nodes(self.micro_batch)

    def _least_nodes(self, micro_batch: int) -> int | None:
        for nodes in range(1, sum(self.available) + 1):
            if all(self._holds(mix, micro_batch) for mix in self.mixes(nodes)):
                return nodes
        return None

    def _holds(self, mix: Counts, micro_batch: int) -> bool:
        """Whether any template on these nodes fits into memory, by any strategy."""
        m = self.micro_batches(sum(mix), micro_batch)
        for strategy in strategies(self.instance, micro_batch):
            costs = self._places(strategy)
            for places, alone in ((costs.several, False), (costs.alone, True)):
                bounds = stage_bounds(TemplateGraph(places, [mix]), m, int(INFINITY))
                if any(bound < INFINITY and (p == 1) == alone for p, bound in bounds.least.items()):
                    return True
        return False

    def _places(self, strategy: Strategy) -> PlaceCosts:
        if strategy not in self._costs:
            self._costs[strategy] = place_costs(self.instance, strategy, self.options.split)
        return self._costs[strategy]

    def by_size(self, sizes: Iterable[int]) -> list[TemplateResult]:
        """The best template of every size, of any mix of nodes."""
        finals = {n: self.mixes(n) for n in sizes}
        return list(self._best(finals, self.micro_batch, self._end_s).values())

    def by_mix(self, sizes: Iterable[int]) -> list[TemplateResult]:
        """The best template of every mix of nodes of every size."""
        mixes = [mix for n in sizes for mix in self.mixes(n)]
        finals = {i: [mix] for i, mix in enumerate(mixes)}
        return list(self._best(finals, self.micro_batch, self._end_s).values())

    @cached_property
    def _end_s(self) -> float | None:
        """When time is up, counted from the first search on."""
        limit_s = self.options.time_limit_s
        return None if limit_s is None else perf_counter() + limit_s

    def _best(
        self, finals: Mapping[int, Finals], micro_batch: int, end_s: float | None
    ) -> dict[int, TemplateResult]:
        """The best template per key; what time is left is shared equally by the keys to come."""
        all_strategies = strategies(self.instance, micro_batch)
        sizes = {key: sum(own[0]) for key, own in finals.items()}
        middle = self.micro_batches(sorted(sizes.values())[len(sizes) // 2], micro_batch)
        first = {one: self._first(one, finals, middle) for one in all_strategies}
        found = dict[int, TemplateResult]()
        for i, (key, own) in enumerate(finals.items()):
            m = self.micro_batches(sizes[key], micro_batch)
            offers = {one: first[one].get(key) for one in all_strategies}
            self._report(i, len(finals))
            found[key] = self._result(
                sizes[key], m, self._interruptible(own, m, offers, until(end_s, len(finals) - i))
            )
        return found

    def _interruptible(
        self,
        finals: Finals,
        m: int,
        offers: Mapping[Strategy, Template | None],
        stop: Callable[[], bool],
    ) -> tuple[TemplateOutcome, Strategy | None]:
        """The same as `_search`; after Ctrl-C what the starts give, with their bounds."""
        if not self.interrupted:
            try:
                return self._search(finals, m, offers, stop)
            except KeyboardInterrupt:
                self.interrupted = True
        return self._search(finals, m, offers, lambda: True)

    def _first(
        self, strategy: Strategy, finals: Mapping[int, Finals], m: int
    ) -> dict[int, Template]:
        """Per key, what its search starts from."""
        costs = self._places(strategy)
        if self.options.objective is TemplateObjective.OOBLECK:
            return oobleck_templates(costs, finals)
        return starts(costs, finals, m)

    def _search(
        self,
        finals: Finals,
        m: int,
        offers: Mapping[Strategy, Template | None],
        stop: Callable[[], bool],
    ) -> tuple[TemplateOutcome, Strategy | None]:
        """The best outcome over all strategies, and its strategy; the bound is that of all."""
        best, chosen = TemplateOutcome(None, None, int(INFINITY), True), None
        bounds, complete = list[int](), True
        for strategy, offer in offers.items():
            costs = self._places(strategy)
            if self.options.objective is TemplateObjective.OOBLECK:
                found = oobleck_in_memory(costs, finals, m, offer, stop)
            else:
                search = StepTimeSearch(costs, finals, m, self.options.gap)
                found = search.run(offer, best.value, stop)
            bounds.append(found.bound)
            complete &= found.complete
            if found.value is not None and (best.value is None or found.value < best.value):
                best, chosen = found, strategy
        bound = min(bounds) if best.value is None else min(*bounds, best.value)
        return TemplateOutcome(best.template, best.value, bound, complete), chosen

    def _result(
        self, nodes: int, m: int, found: tuple[TemplateOutcome, Strategy | None]
    ) -> TemplateResult:
        outcome, strategy = found
        template, value = outcome.template, outcome.value
        if template is None or value is None or strategy is None:
            status = Status.INFEASIBLE if outcome.complete else Status.UNKNOWN
            return TemplateResult(nodes, m, outcome, None, None, status)
        judged = pipeline_step_ns(template_costs(self.instance, strategy, template), m)
        if self.options.objective is TemplateObjective.STEP_TIME:
            assert judged == value, (judged, value)
        proved = outcome.bound >= below(value, self.options.gap)
        status = Status.OPTIMAL if proved else Status.FEASIBLE
        return TemplateResult(nodes, m, outcome, strategy, judged, status)


def _mixes(available: Counts, nodes: int) -> Iterator[Counts]:
    if not available:
        yield from [()] if nodes == 0 else []
        return
    rest = sum(available[1:])
    for first in range(max(0, nodes - rest), min(available[0], nodes) + 1):
        for others in _mixes(available[1:], nodes - first):
            yield first, *others


def until(end_s: float | None, sharing: int) -> Callable[[], bool]:
    """Stops after one of so many equal shares of the time that is left."""
    if end_s is None:
        return lambda: False
    now_s = perf_counter()
    own_s = now_s + max(0.0, end_s - now_s) / sharing
    return lambda: perf_counter() > own_s
