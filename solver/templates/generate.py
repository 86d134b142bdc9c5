"""The best template of every size of an instance, and of every mix of its nodes."""

import json
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from types import FrameType
from typing import Any, TypeVar

from pydantic import TypeAdapter

from formulations.costs.template_costs import template_costs
from formulations.errors import PlannerError
from formulations.fleet import Design, Strategy, Template
from formulations.instance import Instance, ZoneLink
from formulations.instance.record import Record
from formulations.node_sharing import NodeSplit
from formulations.space.configurations import pipeline_strategies
from formulations.space.fleets import check_fleets
from formulations.units import ceil_div, seconds
from solver.enumeration.enumerate import below
from solver.graph.edges import has_split
from solver.graph.pipelines import Counts, FreeDegrees
from solver.graph.places import PlaceCosts, place_costs
from solver.graph.problem import INFINITY
from solver.interrupt import Deadline, NoTimeError, Stop, TimeUp, time_up_after
from solver.result import Status
from solver.simulate import pipeline_step_ns
from solver.study.store import Shelf, Study
from solver.templates.step_time import TemplateOutcome, alone, best_template

T = TypeVar("T")

#: What is known of a mix of nodes, and the strategy of its template.
Found = tuple[TemplateOutcome, Strategy | None]
_FOUND = TypeAdapter[Found](Found)
#: Of records in a study; of what it notes of the last sizes that were looked at.
KIND, TEMPLATES = "template", "templates"


@dataclass(frozen=True)
class TemplateOptions:
    """What may be asked.

    micro_batch: sequences; None: see `generator_for`. micro_batches: of every template; None: its
    share of the global batch by nodes. time_limit_s: for all sizes together.
    """

    split: NodeSplit = NodeSplit.ALIGNED
    micro_batch: int | None = None
    micro_batches: int | None = None
    gap: float = 0.0
    time_limit_s: float | None = None


class TemplateEntry(Record):
    """The best template of one size, or of one mix of nodes.

    step_time_s: simulated step of one pipeline with these micro-batches; no template has one below
    bound_s. None where there is no template.
    """

    nodes: int
    micro_batches: int
    status: Status
    step_time_s: float | None
    bound_s: float | None
    gap: float | None
    strategy: Strategy | None
    template: Template | None

    @property
    def design(self) -> Design | None:
        """The template and how it runs; None without one."""
        if self.template is None or self.strategy is None:
            return None
        return Design(template=self.template, strategy=self.strategy)


@dataclass(frozen=True)
class Clock:
    """How long templates may take, and the wishes to stop.

    deadline: of these templates. last: of all those around them, after which also what does not ask
    whether to stop is ended. The first Ctrl-C is a wish to stop, heard where work asks for it, so
    that none of its tables is left half made; the second one ends everything.
    """

    deadline: Deadline
    last: Deadline
    signals: list[int] = field(default_factory=list)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C has come."""
        return bool(self.signals)

    def run(self, work: Callable[[Stop], T], parts: int) -> T:
        """What work gives in one of so many equal parts of the time that is left.

        After Ctrl-C what it gives without more time.
        """
        left_s = self.deadline.left_s
        part = Deadline(None if left_s is None else left_s / parts)

        def hear(signum: int, frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.signals.append(signum)

        if threading.current_thread() is not threading.main_thread():
            return work(part.over)
        before = signal.signal(signal.SIGINT, hear)
        try:
            return work(lambda: self.interrupted or part.over())
        finally:
            signal.signal(signal.SIGINT, before)


class Mixes:
    """Mixes of nodes of one instance, by node group; costs of their stages, worked out once."""

    def __init__(self, instance: Instance, split: NodeSplit) -> None:
        self.instance, self._split = instance, split
        #: nodes of every group
        self.available: Counts = tuple(group.nodes for group in instance.cluster.groups)
        self._places: dict[tuple[Strategy, tuple[ZoneLink, ...]], PlaceCosts] = {}

    def of(self, nodes: int) -> list[Counts]:
        """All ways to take so many of the cluster's nodes."""
        mixes: list[Counts] = [()]
        for j, available in enumerate(self.available):
            after = sum(self.available[j + 1 :])  # nodes of the groups to come
            mixes = [
                (*mix, count)
                for mix in mixes
                for missing in [nodes - sum(mix)]
                for count in range(max(0, missing - after), min(available, missing) + 1)
            ]
        return mixes

    def places(self, strategy: Strategy, mix: Counts | None = None) -> PlaceCosts:
        """Of a mix that may lie in several zones, with the links between them; or in one zone."""
        groups = () if mix is None else (j for j, count in enumerate(mix) if count)
        key = strategy, self.instance.cluster.links_among(groups)
        if key not in self._places:
            self._places[key] = place_costs(self.instance, strategy, self._split, key[1])
        return self._places[key]

    def holds(self, mix: Counts, strategies: Iterable[Strategy], micro_batches: int) -> bool:
        """Whether any template on these nodes fits into memory, by any strategy."""
        for costs in map(self.places, strategies):
            if alone(costs.alone, [mix], micro_batches):
                return True
            if has_split(FreeDegrees(costs.several, [mix], micro_batches).problem):
                return True
        return False


class TemplateGenerator:
    """Templates of one instance, as far as fleets keep to it: see `formulations.space.fleets`."""

    def __init__(
        self,
        instance: Instance,
        options: TemplateOptions,
        report: Callable[[int, int], None] = lambda done, total: None,
        clock: Clock | None = None,
        study: Study | None = None,
    ) -> None:
        """`report` is told how many templates of how many are done; `clock`: of those around.

        study: what was found before, and where to keep what is found now.

        Raises PlannerError: a field that fleets cannot keep to; a micro-batch that divides no step
        or that the instance does not list.
        """
        check_fleets(instance)
        b, batch = options.micro_batch, instance.workload.global_batch
        listed = instance.search.micro_batch
        if b is not None and listed is not None and b not in listed:
            allowed = " or ".join(map(str, listed))
            raise PlannerError(f"--micro-batch {b}: not in search.micro_batch; allowed: {allowed}")
        if b is not None and batch % b:
            raise PlannerError(
                f"--micro-batch {b}: does not divide the global batch of {batch}; allowed: "
                f"divisors of {batch}"
            )
        self.instance, self.options, self._report = instance, options, report
        deadline = Deadline(options.time_limit_s)
        # Of those around: heard and ended with all others
        self.clock = replace(clock, deadline=deadline) if clock else Clock(deadline, deadline)
        self.mixes = Mixes(instance, options.split)
        self.study, self._kept = study, Shelf(study, KIND, _FOUND)

    def again(
        self, report: Callable[[int, int], None] = lambda done, total: None, **changes: Any
    ) -> "TemplateGenerator":
        """One with other options, which knows the costs that this one knows, and ends with it."""
        options = replace(self.options, **changes)
        generator = TemplateGenerator(self.instance, options, report, self.clock, self.study)
        generator.mixes = self.mixes
        return generator

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
        return ceil_div(sequences, sum(self.mixes.available) * self.micro_batch)

    @property
    def too_small(self) -> str:
        """What to say where no number of nodes is enough."""
        total = sum(self.mixes.available)
        return (
            f"cluster: no template fits into the memory of its nodes, not of all {total}; allowed: "
            "more nodes, GPUs with more memory, smaller micro-batches, full recomputation"
        )

    @cached_property
    def least_nodes(self) -> int | None:
        """n0: the fewest nodes of which every choice holds the model; None if all are too few."""
        with self.in_time():
            return self.least_up_to(sum(self.mixes.available))

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """What takes longer than the time limit ends. Raises NoTimeError, exit code 4."""
        try:
            with time_up_after(self.clock.last.end_s):
                yield
        except TimeUp:
            missing = "it is not known yet how few nodes hold the model"
            raise NoTimeError(f"{missing}; raise --time-limit") from None

    def least_up_to(self, limit: int) -> int | None:
        """n0 if it is at most this; else None."""
        strategies = pipeline_strategies(self.instance, self.micro_batch)
        for nodes in range(1, limit + 1):
            m = self.micro_batches(nodes)
            if all(self.mixes.holds(mix, strategies, m) for mix in self.mixes.of(nodes)):
                return nodes
        return None

    def by_mix(self, sizes: Iterable[int]) -> list[TemplateEntry]:
        """The best template of every mix of nodes of every size.

        What time is left is shared equally by those to come. Without any left nothing is tried for
        them, but for the first one as long as the hard end allows.
        """
        mixes = [mix for n in sizes for mix in self.mixes.of(n)]
        entries = list[TemplateEntry]()
        if self.study is not None:
            self.study.note(TEMPLATES, {"mixes": [(mix, self._variant(mix)) for mix in mixes]})
        try:
            with time_up_after(self.clock.last.end_s):
                for number, mix in enumerate(mixes):
                    if entries and (self.clock.interrupted or self.clock.deadline.over()):
                        break
                    self._report(len(entries), len(mixes))
                    entries.append(self._entry(mix, self._best(mix, len(mixes) - number)))
        except TimeUp:
            pass
        nothing = TemplateOutcome(None, None, 0, False), None
        return entries + [self._entry(mix, nothing) for mix in mixes[len(entries) :]]

    def _variant(self, mix: Counts) -> dict[str, object]:
        """On what it depends which template of a mix is found; less time would do as well."""
        options = replace(self.options, micro_batches=self.micro_batches(sum(mix)))
        return asdict(replace(options, time_limit_s=None))

    def _best(self, mix: Counts, parts: int) -> Found:
        """The best template of a mix, of the study or in one of so many parts of the time left."""
        m = self.micro_batches(sum(mix))
        for outcome, strategy in self._kept.find(mix, self._variant(mix)):
            self._check(outcome, strategy, m)
            return outcome, strategy
        strategies = pipeline_strategies(self.instance, self.micro_batch)
        costs = {strategy: self.mixes.places(strategy, mix) for strategy in strategies}
        best = self.clock.run(
            lambda stop: best_of_strategies(costs, mix, m, self.options.gap, stop), parts
        )
        if best[0].complete:
            self._kept.keep(mix, self._variant(mix), best)
        return best

    def _check(self, outcome: TemplateOutcome, strategy: Strategy | None, m: int) -> None:
        """A template of a study is simulated before it is believed; StudyError if it is not so."""
        template = outcome.template
        if template is not None and strategy is not None:
            self._kept.check(
                "template",
                outcome.value,
                lambda instance: pipeline_step_ns(template_costs(instance, strategy, template), m),
            )

    def _entry(self, mix: Counts, best: Found) -> TemplateEntry:
        """What is found for a mix of nodes, and what of it is proved."""
        outcome, strategy = best
        m, template, value = self.micro_batches(sum(mix)), outcome.template, outcome.value
        if template is None or value is None or strategy is None:
            status = Status.INFEASIBLE if outcome.complete else Status.UNKNOWN
            template = value = strategy = None
        else:
            step_ns = pipeline_step_ns(template_costs(self.instance, strategy, template), m)
            assert step_ns == value, (step_ns, value)
            proved = outcome.bound >= below(value, self.options.gap)
            status = Status.OPTIMAL if proved else Status.FEASIBLE
        return TemplateEntry(
            nodes=sum(mix),
            micro_batches=m,
            status=status,
            step_time_s=None if value is None else seconds(value),
            bound_s=seconds(outcome.bound) if outcome.bound < INFINITY else None,
            gap=None if value is None else 1 - outcome.bound / value,
            strategy=strategy,
            template=template,
        )


def best_of_strategies(
    costs: dict[Strategy, PlaceCosts], mix: Counts, micro_batches: int, gap: float, stop: Stop
) -> Found:
    """The best template of a mix over all strategies, and its strategy.

    The bound is that of all.
    """
    best, chosen = TemplateOutcome(None, None, int(INFINITY), True), None
    bounds, complete = list[int](), True
    for strategy, places in costs.items():
        outcome = best_template(places, [mix], micro_batches, stop, cutoff=best.value, gap=gap)
        bounds.append(outcome.bound)
        complete &= outcome.complete
        if outcome.value is not None and (best.value is None or outcome.value < best.value):
            best, chosen = outcome, strategy
    bound = min(bounds) if best.value is None else min(*bounds, best.value)
    return TemplateOutcome(best.template, best.value, bound, complete), chosen


def open_mixes(study: Study) -> tuple[int, list[Counts]] | None:
    """Mixes of nodes that are done, their number, and those still to do; None before any."""
    if TEMPLATES not in study.notes:
        return None
    asked, kept = json.loads(study.notes[TEMPLATES])["mixes"], Shelf(study, KIND, _FOUND)
    to_do = [tuple(mix) for mix, variant in asked if not kept.find(mix, variant)]
    return len(asked) - len(to_do), to_do
