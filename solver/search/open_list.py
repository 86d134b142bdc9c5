"""The configs of a search, cheapest bound first: what is open, and how the others were closed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile

from formulations.errors import InstanceError
from formulations.plan import Configuration
from solver.interrupt import Stop, TimeUp
from solver.result import ConfigRecord
from solver.search.fathoming import Closer, Task

#: Configurations that are looked at together, before time is looked at again.
AT_ONCE = 512
#: More configurations than these are no question that is answered one by one.
MOST_SHAPES = 10**6


class OpenList:
    """Configurations of an instance; `complete` unless there was no time to list them: then none.

    tasks: with closed-form bounds. records: how configurations were closed, or what is proved of
    them.
    """

    def __init__(self, space: Iterator[Configuration], closer: Closer, stop: Stop) -> None:
        self.closer, self.tasks, self.complete = closer, list[Task](), True
        self.records: dict[Configuration, ConfigRecord] = {}
        try:
            while batch := list(islice(space, AT_ONCE)):
                if self.tasks and stop():
                    raise TimeUp
                if len(self.tasks) >= MOST_SHAPES:
                    what = "combinations of nodes, degrees and strategies"
                    text = f"more than {MOST_SHAPES:,} {what}"
                    raise InstanceError("search", text, "fewer, or idle_nodes: false")
                self.tasks += [
                    Task(closer.objective(config, form.bound_ns), *form, config)
                    for form, config in zip(closer.times.forms(batch), batch, strict=True)
                ]
        except TimeUp:
            self.tasks, self.complete = [], False
        self.tasks.sort(key=lambda task: task.objective)

    def open(self, best: float | None, effort: int | None = None) -> list[Task]:
        """What may still hold a better plan than the incumbent, best bound first.

        Devices with several chunks come last: their bounds are low, and take longest to rise.
        """
        may_beat = list[Task]()
        for task in takewhile(lambda task: not self.closer.beyond(task, best), self.tasks):
            record = self.records.get(task.config)
            if record is not None:  # with what is proved, which may close it
                if self.closer.reviewed(record, best).reason != "open":
                    continue
                bound_ns = record.bound_ns or 0
                objective = self.closer.objective(task.config, bound_ns)
                task = replace(task, objective=objective, bound_ns=bound_ns, proof=record.proof)
            if not self.closer.beyond(task, best):
                may_beat.append(replace(task, effort=effort))
        return sorted(may_beat, key=lambda task: (task.config.vpp > 1, task.objective))

    def least_bound(self, best: float | None) -> float | None:
        """No plan has a lower objective, by what is proved of open and closed configs; None: none.

        Told often, so no list is made: what is proved of a configuration is no less than its first
        bound.
        """
        bound = best
        for task in self.tasks:
            if bound is not None and task.objective >= bound:
                break
            record, proved = self.records.get(task.config), task.objective
            if record is None:
                has_plan = task.bound_ns < self.closer.refused(task.config)
            else:
                has_plan = record.bound_ns is not None
                proved = self.closer.objective(task.config, record.bound_ns or 0)
            if has_plan:
                bound = proved if bound is None else min(bound, proved)
        return bound

    def unpacked(self, tasks: Sequence[Task], best: float | None, stop: Stop) -> list[Task]:
        """The tasks that whole blocks do not close; the others are. All are left without time."""
        still_open = list[Task]()
        for first in range(0, len(tasks), AT_ONCE):
            if stop():
                return [*still_open, *tasks[first:]]
            batch = tasks[first : first + AT_ONCE]
            below_ns = [self.closer.target(task.config, best) for task in batch]
            closed = self.closer.times.refuted([task.config for task in batch], below_ns)
            for task, ns, shut in zip(batch, below_ns, closed, strict=True):
                if shut:  # with the bound that this takes
                    packed = replace(task, bound_ns=ns, proof="packing")
                    self.records[task.config] = self.closer.by_bound(packed, best).record
                else:
                    still_open.append(task)
        return still_open

    def reviewed(self, best: float | None) -> tuple[ConfigRecord, ...]:
        """The records of all configurations, where a late incumbent has closed some."""
        return tuple(
            self.closer.reviewed(self.records[task.config], best)
            if task.config in self.records
            else self.closer.by_bound(task, best).record
            for task in self.tasks
        )

    def bounds(self, records: Sequence[ConfigRecord]) -> list[float]:
        """Lower bounds of the objective of those configurations that may have a plan."""
        return [
            self.closer.objective(record.config, record.bound_ns)
            for record in records
            if record.bound_ns is not None
        ]
