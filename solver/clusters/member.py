"""Closing one cluster of a family: no plan of it is below a cutoff, or the best that is.

What is closed is kept in a study, and plans are said in numbers of the cluster's own nodes.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from pydantic import TypeAdapter

from formulations.costs.renting import chooses_terms, worthwhile_terms
from formulations.instance import Instance
from formulations.instance.instance import Counts, Family
from formulations.plan import Configuration, Plan
from formulations.space import configs_of
from solver.front_document import Aim
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import ConfigRecord, Termination
from solver.search.fathoming import check_plan
from solver.search.plan_search import EFFORTS, PlanSearch, Report
from solver.study.store import Shelf, Study

#: Limits that are of terms and of steps that are kept, not of plans, where terms are chosen.
LIMITS_OF_TERMS = ("max_price_usd_per_hour", "max_step_time_s", "max_cost_usd_per_step")


@dataclass(frozen=True)
class MemberClosing:
    """What is known of a cluster after its search.

    found: the best plan below the cutoff with its step time in ns. bound_ns: every plan takes at
    least that; None: there is none. interrupted: by Ctrl-C, which the caller has to pass on.
    """

    counts: Counts
    found: tuple[Plan, int] | None
    bound_ns: int | None
    records: tuple[ConfigRecord, ...]
    runtime_s: float
    interrupted: bool = False

    @property
    def cut_short(self) -> bool:
        """Whether there is more to know."""
        return self.interrupted or any(record.reason == "open" for record in self.records)

    @property
    def searched(self) -> bool:
        """Whether bounds alone were not enough."""
        return self.found is not None or any(
            record.proof == "enumeration" for record in self.records
        )


_CLOSINGS = TypeAdapter(MemberClosing)


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
        free = LIMITS_OF_TERMS if chooses_terms(family.instance) else ()
        fastest = family.instance.but(
            objective={"minimize": "step_time"}, limits=dict.fromkeys(free)
        )
        self.family = family.but(instance=fastest)
        self.instance: Instance = fastest.but(search={"idle_nodes": True})
        self.times = TimeTables(self.instance)
        self.study = None if study is None else study.of(self.instance)
        self._kept = Shelf(self.study, "cluster", _CLOSINGS)

    def space(self, counts: Counts) -> Iterator[Configuration]:
        """All configurations of a cluster that no smaller one has."""
        for used in self.family.uses(counts):
            yield from configs_of(self.instance, used)

    def bound_ns(self, counts: Counts) -> int | None:
        """Lower bound of the step time of a cluster, in closed form; None: it has no config."""
        forms = self.times.afresh().forms(list(self.space(counts)))
        return min((form.bound_ns for form in forms), default=None)

    def packed_ns(self, counts: Counts, below_ns: float) -> int:
        """The same by whole blocks, for configurations that it may raise towards `below_ns`."""
        space, times = list(self.space(counts)), self.times.afresh()
        pairs = list(zip(space, (form.bound_ns for form in times.forms(space)), strict=True))
        near = [config for config, bound_ns in pairs if bound_ns < below_ns]
        return min([*times.packed_ns(near), *(ns for _, ns in pairs if ns >= below_ns)])

    def known(self, counts: Counts, cutoff_ns: float) -> MemberClosing | None:
        """What a study knows of a cluster; StudyError for a plan that is not what it is said to be.

        Every cluster was closed below a cutoff of its own: slower plans of it are of no interest.
        """
        for closing in self._kept.find(counts, self._variant(cutoff_ns)):
            if closing.found is not None:
                check_plan(self._kept, *closing.found)
            return closing
        return None

    def keep(self, cutoff_ns: float, closing: MemberClosing) -> None:
        """Adds to the study a cluster that was closed without an end of the time."""
        self._kept.keep(closing.counts, self._variant(cutoff_ns), closing)

    def _variant(self, cutoff_ns: float) -> dict[str, object]:
        limits = self.family.instance.limits.model_dump(mode="json")
        asked = {"gap": self.options.gap, "seed": self.options.seed, "limits": limits}
        return {**asked, "cutoff_ns": repr(cutoff_ns), "fewest": self.family.fewest}

    def close(
        self, counts: Counts, cutoff_ns: float, limit_s: float | None, report: Report | None
    ) -> MemberClosing:
        """Closes a cluster, unless time or Ctrl-C end that early."""
        options = replace(self.options, time_limit_s=limit_s)
        space, times = self.space(counts), self.times.afresh()
        search = PlanSearch(self.instance, options, report, times, space, cutoff_ns, self.study)
        interrupted = False
        try:
            with time_up_after(search.deadline.end_s):
                # as `solve`, but where plans have to be below a cutoff proofs come first, which are
                # enough as a rule, and find what is below it
                if search.incumbents.best is not None:
                    search.run(efforts=EFFORTS[:1])
                still_open = search.open_list.open(search.incumbents.best)
                if space_left := [task.config for task in still_open]:
                    name = f" of {counts}, {self.family.fewest} at least"  # of plans in a study
                    search.first_plans(space_left, name)
                    search.run()
        except TimeUp:
            pass
        except KeyboardInterrupt:
            interrupted = True
        result = search.result(Termination.TIME_LIMIT)
        no_plan = search.open_list.complete and result.bound is None
        return MemberClosing(
            counts=counts,
            found=search.incumbents.known.found,
            bound_ns=None if no_plan else int(result.bound or 0),  # step times are minimised
            records=result.log.configs,
            runtime_s=result.runtime_s,
            interrupted=interrupted,
        )


def member_config(config: Configuration) -> Configuration:
    """The same without node groups that it does not use."""
    used = tuple(count for count in config.nodes_used if count)
    return config.but(nodes_used=used, degrees=tuple(config.degrees_used))


def member_plan(family: Family, plan: Plan) -> Plan:
    """The plan on the cluster of just the nodes that it uses, its nodes numbered anew."""
    used: Counts = plan.config.nodes_used
    wide = family.instance.cluster.first_node
    number: dict[int, int] = {}
    for first, count in zip(wide, used, strict=True):
        number |= {first + i: len(number) + i for i in range(count)}
    replicas = []
    for replica in plan.replicas:
        stages = (stage.but(group={"node": number[stage.group.node]}) for stage in replica.stages)
        replicas.append(replica.but(stages=tuple(stages)))
    order = tuple(number[node] for node in plan.node_order)
    return Plan(config=member_config(plan.config), node_order=order, replicas=tuple(replicas))


#: Of notes in a study, before what was asked.
CLUSTERS = "clusters"


@dataclass(frozen=True)
class FamilyOverview:
    """What was asked of a search over clusters, and how far it was when it last closed one.

    gap: most that the front may be wrong by, relative to its figures; None: by anything.
    """

    aim: Aim
    fewest: Counts
    max_step_time_s: float | None
    max_cost_usd_per_step: float | None
    closed: int
    open: list[Counts]
    front: int
    gap: float | None

    def note(self, study: Study) -> None:
        """Writes it down in place of what was said of the same question."""
        asked = self.aim, self.fewest, self.max_step_time_s, self.max_cost_usd_per_step
        study.note(f"{CLUSTERS} {json.dumps(asked)}", asdict(self))


def family_overviews(notes: Mapping[str, str]) -> Iterator[FamilyOverview]:
    """What a study notes of each question that was asked."""
    for name in sorted(notes):
        if name.startswith(f"{CLUSTERS} "):
            yield FamilyOverview(**json.loads(notes[name]))
