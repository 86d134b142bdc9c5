"""The clusters that a study holds, and what is noted there of a search over them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from formulations.instance.family import Counts
from solver.clusters.member import MemberClosing, Members, MemberTask
from solver.document import canonical_json
from solver.search.shape_answers import check_plan
from solver.study.store import Study

#: Of records in a study, and of the note on the last search.
KIND, CLUSTERS = "cluster", "clusters"

_CLOSINGS = TypeAdapter(MemberClosing)


@dataclass(frozen=True)
class KeptMembers:
    """What was closed of the clusters of a family, each below a cutoff of its own."""

    study: Study
    members: Members

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
        """Writes down how far the search is."""
        fields = {"closed": closed, "open": left, "front": front, "gap": gap}
        self.study.note(CLUSTERS, fields)

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
    """How far a search over clusters had come when it last closed one."""

    closed: int
    open: list[Counts]
    front: int
    gap: float | None


def family_overview(notes: Mapping[str, str]) -> FamilyOverview | None:
    """What a study notes of it; None where there was none."""
    return FamilyOverview(**json.loads(notes[CLUSTERS])) if CLUSTERS in notes else None


def _key(counts: Counts) -> str:
    return canonical_json({"nodes": counts})
