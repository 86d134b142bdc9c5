"""The templates that a study holds."""

import json
from collections.abc import Mapping

from pydantic import TypeAdapter

from formulations.costs.template_costs import template_costs
from formulations.errors import PlanError
from formulations.fleet import Strategy
from solver.files import canonical_json
from solver.graph.gpu_graph import Counts
from solver.simulate import pipeline_step_ns
from solver.study.store import Study
from solver.templates.step_time import TemplateOutcome

#: In a study.
KIND = "template"

#: What is known of a mix of nodes, and the strategy of its template.
Found = tuple[TemplateOutcome, Strategy | None]
_FOUND = TypeAdapter[Found](Found)


#: What a study notes of the last sizes that were looked at.
TEMPLATES = "templates"


def open_mixes(study: Study, notes: Mapping[str, str]) -> tuple[int, list[Counts]] | None:
    """Mixes of nodes that are done, their number, and those still to do; None before any."""
    if TEMPLATES not in notes:
        return None
    asked = [(tuple(mix), variant) for mix, variant in json.loads(notes[TEMPLATES])["mixes"]]
    to_do = [
        mix
        for mix, variant in asked
        if all(record.variant != variant for record in study.find(KIND, _key(mix)))
    ]
    return len(asked) - len(to_do), to_do


def _key(mix: Counts) -> str:
    return canonical_json({"nodes": mix})


class KeptTemplates:
    """The best templates of mixes of nodes, as searches with some options have left them."""

    def __init__(self, study: Study, asked: Mapping[str, object]) -> None:
        """`asked`: all on which what is found depends."""
        self.study, self._asked = study, asked

    def _variant(self, micro_batches: int) -> str:
        return canonical_json({**self._asked, "micro_batches": micro_batches})

    def begin(self, mixes: Mapping[Counts, int]) -> None:
        """Notes what is looked for: mixes of nodes, with their numbers of micro-batches."""
        asked = [[list(mix), self._variant(m)] for mix, m in mixes.items()]
        self.study.note(TEMPLATES, {"mixes": asked})

    def find(self, mix: Counts, micro_batches: int) -> Found | None:
        """What is known of a mix; StudyError if a template is not what it is said to be."""
        for record in self.study.find(KIND, _key(mix)):
            if record.variant == self._variant(micro_batches):
                kept = self.study.read(KIND, record, _FOUND)
                self._check(kept, micro_batches)
                return kept
        return None

    def keep(self, mix: Counts, micro_batches: int, best: Found) -> None:
        """Adds what a search found that ran to its end."""
        if best[0].complete:
            fields = _FOUND.dump_json(best).decode()
            self.study.keep(KIND, _key(mix), self._variant(micro_batches), fields)

    def _check(self, kept: Found, micro_batches: int) -> None:
        """A template is simulated before it is believed."""
        outcome, strategy = kept
        if outcome.template is None or strategy is None:
            return
        try:
            costs = template_costs(self.study.instance, strategy, outcome.template)
            took_ns = pipeline_step_ns(costs, micro_batches)
        except (PlanError, LookupError):
            fault = "a template that does not fit the instance"
            raise self.study.damaged(KIND, fault) from None
        if took_ns != outcome.value:
            fault = f"a template of {outcome.value} ns takes {took_ns} ns"
            raise self.study.damaged(KIND, fault)
