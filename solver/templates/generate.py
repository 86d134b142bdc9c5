"""The best template of every size of an instance, under either objective."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter
from types import FrameType
from typing import Any, Protocol, TypeVar

from formulations.costs.template_costs import in_several_zones, template_costs
from formulations.errors import PlannerError
from formulations.fleet import Strategy
from formulations.instance import Instance
from formulations.units import ceil_div
from solver.enumeration.enumerate import below
from solver.interrupt import GRACE_S, NoTimeError, TimeUp, time_up_after
from solver.layered.problem import INFINITY
from solver.result import Status
from solver.simulate import pipeline_step_ns
from solver.templates.chains import Counts
from solver.templates.judge import alone, fits
from solver.templates.oobleck import OobleckSearch
from solver.templates.places import PlaceCosts, place_costs, strategies
from solver.templates.shared_bounds import least_latencies
from solver.templates.step_time import StepTimeSearch
from solver.templates.template_options import TemplateObjective, TemplateOptions
from solver.templates.template_outcome import TemplateOutcome


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
Stop = Callable[[], bool]
Result = TypeVar("Result")


class TemplateSearch(Protocol):
    """Templates of one strategy for some keys."""

    def prepare(self, stop: Stop) -> None:
        """What all keys share, as far as time allows."""

    def run(self, key: int, cutoff: int | None, stop: Stop) -> TemplateOutcome:
        """The best template of a key; one below `cutoff` is enough to know, if one is given."""
        ...


class TemplateGenerator:
    """Templates of one instance.

    Of its search space, the degrees of data and pipeline parallelism, idle nodes and
    ZeRO are choices of whole plans and not looked at.
    """

    def __init__(
        self,
        instance: Instance,
        options: TemplateOptions,
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """`report` is told how many templates of how many are done.

        Raises PlannerError: a micro-batch that divides no step.
        """
        b, batch = options.micro_batch, instance.workload.global_batch
        if b is not None and batch % b:
            raise PlannerError(
                f"--micro-batch {b}: does not divide the global batch of {batch}; allowed: "
                f"divisors of {batch}"
            )
        self.instance, self.options, self._report = instance, options, report
        self.interrupted = False
        limit_s = options.time_limit_s
        self._end_s = None if limit_s is None else perf_counter() + limit_s
        self._hard_end_s = None if self._end_s is None else self._end_s + GRACE_S
        self._costs: dict[tuple[Strategy, bool], PlaceCosts] = {}

    def again(
        self, report: Callable[[int, int], None] = lambda done, total: None, **changes: Any
    ) -> "TemplateGenerator":
        """One with other options, which knows the costs that this one knows, and ends with it."""
        found = TemplateGenerator(self.instance, replace(self.options, **changes), report)
        found._costs, found.interrupted = self._costs, self.interrupted
        found._hard_end_s = self._hard_end_s
        return found

    @cached_property
    def available(self) -> Counts:
        """Nodes of every group."""
        return tuple(group.nodes for group in self.instance.cluster.groups)

    def mixes(self, nodes: int) -> list[Counts]:
        """All ways to take so many of the cluster's nodes, by node group."""
        return list(_mixes(self.available, nodes))

    @property
    def micro_batch(self) -> int:
        """Sequences per micro-batch, which the options have to name; see `generator_for`."""
        assert self.options.micro_batch is not None
        return self.options.micro_batch

    def micro_batches(self, nodes: int) -> int:
        """Micro-batches of a template: as asked for, or its nodes' share of a step, rounded up."""
        if self.options.micro_batches is not None:
            return self.options.micro_batches
        sequences = self.instance.workload.global_batch * nodes
        return ceil_div(sequences, sum(self.available) * self.micro_batch)

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
        with self.in_time():
            return self.least_up_to(sum(self.available))

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """What takes longer than the time limit ends. Raises NoTimeError, exit code 4."""
        try:
            with time_up_after(self._left_s):
                yield
        except TimeUp:
            missing = "it is not known yet how few nodes hold the model"
            raise NoTimeError(f"{missing}; raise --time-limit") from None

    def least_up_to(self, most: int) -> int | None:
        """n0 if it is at most this; else None."""
        for nodes in range(1, most + 1):
            if all(map(self._holds, self.mixes(nodes))):
                return nodes
        return None

    def _holds(self, mix: Counts) -> bool:
        """Whether any template on these nodes fits into memory, by any strategy."""
        m = self.micro_batches(sum(mix))
        for strategy in strategies(self.instance, self.micro_batch):
            costs = self._places(strategy)
            if any(fits(costs, one, m) for one in alone(costs.alone, [mix])):
                return True
            if least_latencies(costs.several, mix, m).min() < INFINITY:
                return True
        return False

    def _places(self, strategy: Strategy, across: bool = False) -> PlaceCosts:
        """across: for templates in several zones."""
        key = strategy, across
        if key not in self._costs:
            self._costs[key] = place_costs(self.instance, strategy, self.options.split, across)
        return self._costs[key]

    def _across(self, mix: Counts) -> bool:
        """Whether templates of a mix lie in several zones."""
        groups = (j for j, count in enumerate(mix) if count)
        return in_several_zones(self.instance.cluster, groups)

    def by_mix(self, sizes: Iterable[int]) -> list[TemplateResult]:
        """The best template of every mix of nodes of every size."""
        mixes = [mix for n in sizes for mix in self.mixes(n)]
        finals = {i: [mix] for i, mix in enumerate(mixes)}
        return list(self._best(finals).values())

    @property
    def _left_s(self) -> float | None:
        """Until what does not ask whether to stop is ended; None: never."""
        return None if self._hard_end_s is None else max(0.0, self._hard_end_s - perf_counter())

    def _best(self, finals: Mapping[int, Finals]) -> dict[int, TemplateResult]:
        """The best template per key; what time is left is shared equally by the keys to come.

        Without any left nothing is tried for them, but for the first one as long as GRACE_S allows.
        """
        numbers = {key: self.micro_batches(sum(own[0])) for key, own in finals.items()}
        found = dict[int, TemplateResult]()
        try:
            with time_up_after(self._left_s):
                for group in self._together(finals, numbers):
                    self._fill(found, group, numbers, len(finals))
        except TimeUp:
            pass
        nothing = TemplateOutcome(None, None, 0, False), None
        return {
            key: found.get(key) or self._result(sum(own[0]), numbers[key], nothing)
            for key, own in finals.items()
        }

    def _fill(
        self,
        found: dict[int, TemplateResult],
        group: Mapping[int, Finals],
        numbers: Mapping[int, int],
        total: int,
    ) -> None:
        """Adds the best templates of the keys of a group, as far as time allows."""
        if found and self._is_over:
            return
        searches = self._prepared(group, numbers, total - len(found))
        for key, own in group.items():
            self._report(len(found), total)
            if found and self._is_over:
                return
            search = partial(self._search, searches, key)
            outcome = self._interruptible(search, until(self._end_s, total - len(found)))
            found[key] = self._result(sum(own[0]), numbers[key], outcome)

    @property
    def _is_over(self) -> bool:
        """Whether there is no time left, or Ctrl-C has come."""
        return self.interrupted or (self._end_s is not None and perf_counter() >= self._end_s)

    def _together(
        self, finals: Mapping[int, Finals], numbers: Mapping[int, int]
    ) -> list[dict[int, Finals]]:
        """Keys that one search can serve.

        For step times, those of equally many micro-batches, in one zone or in several.
        """
        if self.options.objective is TemplateObjective.OOBLECK:
            return [dict(finals)]
        alike: dict[tuple[int, bool], dict[int, Finals]] = {}
        for key, own in finals.items():
            alike.setdefault((numbers[key], self._across(own[0])), {})[key] = own
        return list(alike.values())

    def _prepared(
        self,
        group: Mapping[int, Finals],
        numbers: Mapping[int, int],
        left: int,
    ) -> dict[Strategy, TemplateSearch]:
        """What serves the keys of a group, by strategy, after at most half of their time."""
        searches = dict[Strategy, TemplateSearch]()
        every = strategies(self.instance, self.micro_batch)
        share = 2 * len(every) * left / len(group)
        for one in every:
            if self.options.objective is TemplateObjective.OOBLECK:
                searches[one] = OobleckSearch(self._places(one), group, numbers)
            else:
                key, own = next(iter(group.items()))
                costs = self._places(one, self._across(own[0]))
                searches[one] = StepTimeSearch(costs, group, numbers[key], self.options.gap)
            self._interruptible(searches[one].prepare, until(self._end_s, share))
        return searches

    def _interruptible(self, work: Callable[[Stop], Result], stop: Stop) -> Result:
        """What work gives; after Ctrl-C what it gives without more time.

        The first Ctrl-C is a wish to stop, heard where the search asks for it, so that none of its
        tables is left half made; the second one ends everything.
        """

        def hear(signum: int, frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        if threading.current_thread() is not threading.main_thread():
            return work(stop)
        before = signal.signal(signal.SIGINT, hear)
        try:
            return work(lambda: self.interrupted or stop())
        finally:
            signal.signal(signal.SIGINT, before)

    def _search(
        self, searches: Mapping[Strategy, TemplateSearch], key: int, stop: Stop
    ) -> tuple[TemplateOutcome, Strategy | None]:
        """The best outcome over all strategies, and its strategy; the bound is that of all."""
        best, chosen = TemplateOutcome(None, None, int(INFINITY), True), None
        bounds, complete = list[int](), True
        for strategy, search in searches.items():
            found = search.run(key, best.value, stop)
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


def until(end_s: float | None, sharing: float) -> Callable[[], bool]:
    """Stops after one of so many equal shares of the time that is left."""
    if end_s is None:
        return lambda: False
    now_s = perf_counter()
    own_s = now_s + max(0.0, end_s - now_s) / sharing
    return lambda: perf_counter() > own_s
