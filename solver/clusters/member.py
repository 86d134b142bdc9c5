"""Closing one cluster of a family: no plan of it is below a cutoff, or the best that is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from formulations.costs.renting import chooses_terms, worthwhile_terms
from formulations.instance import Instance
from formulations.instance.family import Counts, Family
from formulations.plan import Plan, Shape
from formulations.space import shapes_of
from solver.heuristics.choose import TimeTables
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import ShapeRecord
from solver.search.closing import Stop
from solver.search.driver import EFFORTS, ShapeSearch
from solver.search.progress import Report
from solver.study.store import Study

#: Limits that are of terms and of steps that are kept, not of plans, where terms are chosen.
LIMITS_OF_TERMS = ("max_price_usd_per_hour", "max_step_time_s", "max_cost_usd_per_step")


@dataclass(frozen=True)
class MemberTask:
    """A cluster to close: plans of it are of interest below `cutoff_ns`."""

    counts: Counts
    cutoff_ns: float


@dataclass(frozen=True)
class MemberClosing:
    """What is known of a cluster after its search.

    found: the best plan below the cutoff with its step time in ns. bound_ns: every plan takes at
    least that; None: there is none. interrupted: by Ctrl-C, which the caller has to pass on.
    """

    counts: Counts
    found: tuple[Plan, int] | None
    bound_ns: int | None
    records: tuple[ShapeRecord, ...]
    runtime_s: float
    interrupted: bool = False

    @property
    def cut_short(self) -> bool:
        """Whether there is more to know."""
        return self.interrupted or any(one.reason == "open" for one in self.records)

    @property
    def searched(self) -> bool:
        """Whether bounds alone were not enough."""
        return self.found is not None or any(one.proof == "enumeration" for one in self.records)


class Members:
    """The clusters of a family within its limit on rent; their searches share layer times.

    Of each the step time is minimised, whatever its nodes cost. `instance` has the most nodes of
    every group, of which plans may use any.
    """

    def __init__(self, family: Family, options: SolveOptions, study: Study | None = None) -> None:
        self.options = options
        self.counts = [
            counts for counts in family.members() if worthwhile_terms(family.instance, counts)
        ]
        objective = family.instance.objective.model_copy(update={"minimize": "step_time"})
        limits = family.instance.limits
        if chooses_terms(family.instance):
            limits = limits.model_copy(update=dict.fromkeys(LIMITS_OF_TERMS))
        fastest = family.instance.model_copy(update={"objective": objective, "limits": limits})
        self.family = family.model_copy(update={"instance": fastest})
        search = fastest.search.model_copy(update={"idle_nodes": True})
        self.instance: Instance = fastest.model_copy(update={"search": search})
        self.times = TimeTables(self.instance)
        self.study = None if study is None else study.of(self.instance)

    def space(self, counts: Counts) -> Iterator[Shape]:
        """All shapes of a cluster that no smaller one has."""
        for used in self.family.uses(counts):
            yield from shapes_of(self.instance, used)

    def bound_ns(self, counts: Counts) -> int | None:
        """Lower bound of the step time of a cluster, in closed form; None: it has no shape."""
        forms = self.times.afresh().forms(list(self.space(counts)))
        return min((form.bound_ns for form in forms), default=None)

    def packed_ns(self, counts: Counts, below_ns: float) -> int:
        """The same by whole blocks, for shapes that it may raise towards `below_ns`."""
        space, times = list(self.space(counts)), self.times.afresh()
        forms = times.forms(space)
        pairs = list(zip(space, forms, strict=True))
        near = [one for one in pairs if one[1].bound_ns < below_ns and not one[0].per_stage]
        others = [form.bound_ns for _, form in set(pairs) - set(near)]
        return min([*times.packed_ns([shape for shape, _ in near]), *others])

    def close(
        self, task: MemberTask, limit_s: float | None = None, report: Report | None = None
    ) -> MemberClosing:
        """Closes a cluster, unless time or Ctrl-C end that early."""
        options = replace(self.options, time_limit_s=limit_s)
        return self._closed(task, options, report, self.study)

    def needless(self, task: MemberTask, best: float | None) -> bool:
        """Never: who asks has looked at the bound."""
        return False

    def answer(self, task: MemberTask, best: float | None, stop: Stop) -> MemberClosing:
        """As `close`, by a worker: alone, to the end, and without a study."""
        alone = replace(self.options, time_limit_s=None, workers=1, engine="processes")
        return self._closed(task, alone, None, None)

    def objective(self, task: MemberTask, closing: MemberClosing) -> float | None:
        """None: cutoffs of other clusters are another matter."""
        return None

    def elsewhere(self) -> "Callable[[], Members]":
        """The same in another process."""
        return partial(Members, self.family, self.options)

    def _closed(
        self,
        task: MemberTask,
        options: SolveOptions,
        report: Report | None,
        study: Study | None,
    ) -> MemberClosing:
        space, below = self.space(task.counts), task.cutoff_ns
        times = self.times.afresh()
        search = ShapeSearch(self.instance, options, report, times, space, below, study)
        interrupted = False
        try:
            with time_up_after(search.clock.left_s):
                _run(search, f"{task.counts}, {self.family.fewest} at least")
        except TimeUp:
            pass
        except KeyboardInterrupt:
            interrupted = True
        return _closing(task, search, interrupted)


def left_open(task: MemberTask) -> MemberClosing:
    """The closing of a cluster of which nothing became known."""
    return MemberClosing(task.counts, None, 0, (), 0.0)


def _run(search: ShapeSearch, nodes: str) -> None:
    """As `solve`, but proofs come first where plans have to be below a cutoff.

    They are enough as a rule, and find what is below it. `nodes`: which plans of a study belong
    to the same space.
    """
    incumbents, agenda = search.incumbents, search.agenda
    if incumbents.best is not None:
        search.run(efforts=EFFORTS[:1])
    left = [task.shape for task in agenda.open(incumbents.best)]
    if left:
        for start in (incumbents.seed_chunks, incumbents.seed, incumbents.survey):
            incumbents.start(f"{start.__name__} of {nodes}", partial(start, left))
        search.run()


def _closing(task: MemberTask, search: ShapeSearch, interrupted: bool) -> MemberClosing:
    best, known, found = search.incumbents.best, search.incumbents.known, None
    records = search.agenda.reviewed(best)
    bounds = [one.bound_ns for one in records if one.bound_ns is not None]
    if not search.agenda.complete:
        bounds.append(0)
    if known.plan is not None and known.step_time_ns is not None:
        found = known.plan, known.step_time_ns
        bounds.append(known.step_time_ns)
    bound_ns = min(bounds, default=None)
    return MemberClosing(
        counts=task.counts,
        found=found,
        bound_ns=bound_ns,
        records=tuple(search.closer.cutoffs.stated(one, best, bound_ns) for one in records),
        runtime_s=search.clock.elapsed_s,
        interrupted=interrupted,
    )
