"""The clusters that a study holds, and what is noted there of a search over them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from formulations.instance.family import Counts
from solver.clusters.member import MemberClosing, Members, MemberTask
from solver.files import canonical_json
from solver.front_document import Aim
from solver.search.shape_answers import check_plan
from solver.study.store import FREE_LIMITS, Study

#: Of records in a study; of notes on searches, before what was asked.
KIND, CLUSTERS = "cluster", "clusters"

_CLOSINGS = TypeAdapter(MemberClosing)


@dataclass(frozen=True)
class KeptMembers:
    """What was closed of the clusters of a family, each below a cutoff of its own."""

    study: Study
    members: Members
    aim: Aim

    def find(self, task: MemberTask) -> MemberClosing | None:
        """What is known of a cluster; StudyError for a plan that is not what it is said to be."""
        for one in self.study.find(KIND, _key(task.counts)):
            if one.variant == self._variant(task):
                closing = self.study.read(KIND, one, _CLOSINGS)
                if closing.found is not None:
                    check_plan(self.study, KIND, *closing.found)
                return closing
        return None

    def keep(self, task: MemberTask, closing: MemberClosing) -> None:
        """Adds a cluster that was closed without an end of the time."""
        fields = _CLOSINGS.dump_json(closing).decode()
        self.study.keep(KIND, _key(task.counts), self._variant(task), fields)

    def note(self, closed: int, left: Sequence[Counts], front: int, gap: float | None) -> None:
        """Writes down how far the search is, in place of what was said of the same question."""
        family = self.members.family
        limits = family.instance.limits.model_dump(mode="json", include=set(FREE_LIMITS))
        asked = {"aim": self.aim, "fewest": family.fewest, **limits}
        fields = asked | {"closed": closed, "open": left, "front": front, "gap": gap}
        self.study.note(f"{CLUSTERS} {canonical_json(asked)}", fields)

    def _variant(self, task: MemberTask) -> str:
        options, family = self.members.options, self.members.family
        return canonical_json(
            {
                "cutoff_ns": repr(task.cutoff_ns),
                "gap": options.gap,
                "seed": options.seed,
                "fewest": family.fewest,
                "limits": family.instance.limits.model_dump(mode="json"),
            }
        )


@dataclass(frozen=True)
class FamilyOverview:
    """What was asked of a search over clusters, and how far it was when it last closed one."""

    aim: Aim
    fewest: Counts
    max_step_time_s: float | None
    max_cost_usd_per_step: float | None
    closed: int
    open: list[Counts]
    front: int
    gap: float | None


def family_overviews(notes: Mapping[str, str]) -> Iterator[FamilyOverview]:
    """What a study notes of each question that was asked."""
    for name in sorted(notes):
        if name.startswith(f"{CLUSTERS} "):
            yield FamilyOverview(**json.loads(notes[name]))


def _key(counts: Counts) -> str:
    return canonical_json({"nodes": counts})
