"""The best template of every size of an instance, under either objective."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from formulations.errors import PlannerError
from formulations.fleet import Strategy
from formulations.instance import Instance
from formulations.instance.fleet_space import check_fleets
from formulations.units import ceil_div
from solver.interrupt import NoTimeError, TimeUp
from solver.layered.gpu_graph import Counts
from solver.study.store import Study
from solver.templates.judge import judged
from solver.templates.kept_templates import Found, KeptTemplates
from solver.templates.mixes import Links, Mixes
from solver.templates.searches import Searches, strategies
from solver.templates.template_options import TemplateOptions
from solver.templates.template_outcome import TemplateOutcome
from solver.templates.template_result import TemplateResult
from solver.templates.time_shares import Clock


class TemplateGenerator:
    """Templates of one instance, as far as fleets keep to it: see `fleet_space`."""

    def __init__(
        self,
        instance: Instance,
        options: TemplateOptions,
        report: Callable[[int, int], None] = lambda done, total: None,
        clock: Clock | None = None,
        study: Study | None = None,
    ) -> None:
        """`report` is told how many templates of how many are done; `clock`: one around this.

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
        self.clock = Clock(options.time_limit_s, clock)
        self.mixes = Mixes(instance, options.split)
        self.study = study
        self._kept = None if study is None else KeptTemplates(study, options)

    def again(
        self, report: Callable[[int, int], None] = lambda done, total: None, **changes: Any
    ) -> "TemplateGenerator":
        """One with other options, which knows the costs that this one knows, and ends with it."""
        options = replace(self.options, **changes)
        found = TemplateGenerator(self.instance, options, report, self.clock, self.study)
        found.mixes = self.mixes
        return found

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C has come, here or in one of those after this."""
        return self.clock.interrupted

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
    def _strategies(self) -> list[Strategy]:
        return strategies(self.instance, self.micro_batch, self.options.objective)

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
            with self.clock.until_hard_end():
                yield
        except TimeUp:
            missing = "it is not known yet how few nodes hold the model"
            raise NoTimeError(f"{missing}; raise --time-limit") from None

    def least_up_to(self, most: int) -> int | None:
        """n0 if it is at most this; else None."""
        for nodes in range(1, most + 1):
            m, strategies = self.micro_batches(nodes), self._strategies
            if all(self.mixes.holds(mix, strategies, m) for mix in self.mixes.of(nodes)):
                return nodes
        return None

    def by_mix(self, sizes: Iterable[int]) -> list[TemplateResult]:
        """The best template of every mix of nodes of every size.

        What time is left is shared equally by those to come. Without any left nothing is tried for
        them, but for the first one as long as the hard end allows.
        """
        mixes = [mix for n in sizes for mix in self.mixes.of(n)]
        found = list[TemplateResult]()
        if self._kept is not None:
            self._kept.begin({mix: self.micro_batches(sum(mix)) for mix in mixes})
        try:
            with self.clock.until_hard_end():
                known = dict[Links, Searches]()
                for key in range(len(mixes)):
                    if found and self.clock.is_over:
                        break
                    self._report(len(found), len(mixes))
                    found.append(self._best(known, key, mixes))
        except TimeUp:
            pass
        nothing = TemplateOutcome(None, None, 0, False), None
        return found + [self._result(mix, nothing) for mix in mixes[len(found) :]]

    def _best(self, known: dict[Links, Searches], key: int, mixes: list[Counts]) -> TemplateResult:
        """The best template of a mix, by a study or by a search."""
        mix, m = mixes[key], self.micro_batches(sum(mixes[key]))
        found = None if self._kept is None else self._kept.find(mix, m)
        if found is None:
            found = self._searched(known, key, mixes)
            if self._kept is not None:
                self._kept.keep(mix, m, found)
        return self._result(mix, found)

    def _searched(self, known: dict[Links, Searches], key: int, mixes: list[Counts]) -> Found:
        """The best template of a mix; those with other links between zones have other costs."""
        across = self.mixes.links_across(mixes[key])
        if across not in known:
            own = {i: mix for i, mix in enumerate(mixes) if self.mixes.links_across(mix) == across}
            numbers = {i: self.micro_batches(sum(mix)) for i, mix in own.items()}
            costs = {one: self.mixes.places(one, across) for one in self._strategies}
            known[across] = Searches(self.options, costs, own, numbers)
        search = partial(known[across].best, key)
        return self.clock.run(search, self.clock.share(len(mixes) - key))

    def _result(self, mix: Counts, found: Found) -> TemplateResult:
        return judged(self.instance, self.options, mix, self.micro_batches(sum(mix)), found)
