"""The quickest switch plan that is found, balancing or the published rule, and the file of it.

By balancing every demand goes where it is least in the way: once whole, once in a few pieces. Files
are of plans that are alike: of one model on the same machines. Sequence length, batch, and what
machines cost are left aside.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from time import monotonic

from formulations.errors import PlanError
from formulations.instance import Cluster, Workload
from formulations.instance.record import MOST_TEXT
from formulations.lengths.problem import Moves
from formulations.switching.shards import layout_of
from formulations.switching.switch import (
    Demand,
    PortBound,
    Sending,
    Switch,
    port_bound,
    published_plan,
    switch_of,
)
from solver.document import PlanDocument
from solver.files import sealed
from solver.interrupt import TimeUp, time_up_after
from solver.lengths_document import KINDS, SwitchDocument, switch_figures
from solver.plan_figures import plan_of
from solver.verify.findings import Findings

#: Pieces of a demand: where few classes make up the load, one owner of each is not enough.
PIECES = 4
#: Of all demands; where there would be more, each goes whole: it is a small part of the load.
MOST_PIECES = 200_000
#: What a switch rests on: of a model, its layers and the groups of machines.
_MODEL = ("name", "parameters", "parameter_bytes", "gradient_bytes")
_LAYER = (
    *("sharded_parameters", "replicated_parameters", "expert_parameters"),
    *("vocabulary_rows", "vocabulary_columns", "tied_copy"),
)
_GROUP = ("name", "nodes", "gpus_per_node", "zone", "intra_node", "inter_node", "machines")


@dataclass(frozen=True)
class SwitchPlan:
    """Sendings and their time.

    bound: no plan is quicker. published_ns: what the plan of the published rule takes. interrupted:
    by Ctrl-C, so that there may be a quicker one.
    """

    sendings: tuple[Sending, ...]
    time_ns: int
    bound: PortBound
    published_ns: int
    interrupted: bool = False


def plan_switch(switch: Switch, time_limit_s: float | None = None) -> SwitchPlan:
    """The better of balancing and the published rule.

    Ctrl-C, and a time limit for balancing, leave the published rule's plan.
    """
    bound = port_bound(switch)
    if not switch.demands:
        return SwitchPlan((), 0, bound, 0)
    published = published_plan(switch)
    published_ns = switch.time_ns(published)
    sendings, time_ns, interrupted = joined(published), published_ns, False
    try:
        with suppress(TimeUp), time_up_after(time_limit_s):
            balanced = balanced_plan(switch, bound.time_ns - switch.latency_ns)
            balanced_ns = switch.time_ns(balanced)
            if balanced_ns <= published_ns:
                sendings, time_ns = balanced, balanced_ns
    except KeyboardInterrupt:
        interrupted = True
    return SwitchPlan(tuple(sendings), time_ns, bound, published_ns, interrupted)


class _Balance:
    """Times of all ports and links under what is placed so far, ns."""

    def __init__(self, switch: Switch, fixed: Sequence[Sending]) -> None:
        self._network, self._rates = switch.network, [float(r) for r in switch.network.ns_per_byte]
        loads = zip(switch.loads(fixed), self._rates, strict=True)
        self.times = [size * rate for size, rate in loads]

    def place(self, demand: Demand, begin: int, end: int) -> Sending:
        """Bytes of a demand, from the owner and by the GPU that forwards them with least to do."""
        times, rates, size, copies = self.times, self._rates, end - begin, len(demand.receivers)
        source, via = demand.senders[0], None
        if len(demand.senders) > 1:  # after whose sending its busiest line has least to do
            ways = ((self._after(demand, gpu, size), times[gpu], gpu) for gpu in demand.senders)
            source = min(ways)[2]
        if copies > 1:
            first = min(demand.receivers, key=times.__getitem__)
            forwarded_ns = times[first] + (copies - 1) * size * rates[first]
            via_ns = max(self._after(demand, source, size), forwarded_ns)
            if not demand.near or via_ns < self._after(demand, source, copies * size):
                via = first
                times[via] += (copies - 1) * size * rates[via]
        for line in self._links(demand, source):
            times[line] += (copies if via is None else 1) * size * rates[line]
        for gpu in demand.receivers:
            times[self._network.receives(gpu)] += size * rates[gpu]
        return Sending(demand.number, begin, end, source, via, demand.receivers)

    def _after(self, demand: Demand, owner: int, size: int) -> float:
        lines = self._links(demand, owner)
        return max(self.times[line] + size * self._rates[line] for line in lines)

    def _links(self, demand: Demand, owner: int) -> tuple[int, ...]:
        """The port through which an owner sends, and links to the node."""
        return owner, *self._network.between(self._network.node_of[owner], demand.node)


def balanced_plan(switch: Switch, enough_ns: float = 0.0) -> list[Sending]:
    """The better of two plans: with demands as they are, and in pieces.

    Least free demands first, largest first. enough_ns: no plan is quicker, start-up left aside.
    """
    fixed = [demand.direct() for demand in switch.demands if not demand.is_free]
    free = sorted(
        (demand for demand in switch.demands if demand.is_free),
        key=lambda demand: (len(demand.senders), -demand.size_bytes * len(demand.receivers)),
    )
    plans: list[tuple[float, list[Sending]]] = []
    for parts in (1, PIECES):
        if parts * len(free) > MOST_PIECES and plans:
            break
        balance, sendings = _Balance(switch, fixed), list[Sending]()
        for demand in free:
            width = switch.classes[demand.number].element_bytes
            elements = demand.size_bytes // width
            edges = [width * (elements * n // parts) for n in range(parts + 1)]
            sendings += [
                balance.place(demand, *ends) for ends in pairwise(edges) if ends[0] < ends[1]
            ]
        plans.append((max(balance.times, default=0.0), sendings))
        if plans[-1][0] <= enough_ns:
            break
    return joined([*fixed, *min(plans, key=lambda plan: plan[0])[1]])


def joined(sendings: Iterable[Sending]) -> list[Sending]:
    """The same sendings: neighbours that go the same way as one, and an owner's to all nodes."""
    ways: list[Sending] = []
    for way in sorted(sendings, key=lambda way: (way.number, way.receivers, way.begin)):
        if ways and ways[-1] == replace(way, begin=ways[-1].begin, end=way.begin):
            ways[-1] = replace(way, begin=ways[-1].begin)
        else:
            ways.append(way)
    merged: dict[Sending, list[int]] = {}
    for way in ways:
        key = way if way.via is not None else replace(way, receivers=())
        merged.setdefault(key, []).extend(way.receivers)
    return [replace(way, receivers=tuple(receivers)) for way, receivers in merged.items()]


def switch_document(
    before: PlanDocument, after: PlanDocument, moves: Moves, time_limit_s: float | None = None
) -> SwitchDocument:
    """The switch between two files with plans, for the same model and the same machines.

    Raises PlanError for a file that was changed, or that has no plan.
    """
    begin = monotonic()
    workload, cluster = before.instance.workload, before.instance.cluster
    ends = [plan_of(document) for document in (before, after)]
    first, last = (layout_of(cluster, plan) for plan in ends)
    switch = switch_of(cluster, workload, first, last, KINDS[moves])
    sendings = plan_switch(switch, time_limit_s).sendings
    return sealed(
        SwitchDocument(
            **switch_figures(switch, sendings),
            moves=moves,
            classes=switch.classes,
            sendings=sendings,
            before=ends[0],
            after=ends[1],
            workload=workload,
            cluster=cluster,
            runtime_s=monotonic() - begin,
        )
    )


def check_alike(before: PlanDocument, after: PlanDocument, names: tuple[str, str]) -> None:
    """Returns if two plans are of one model and cluster; PlanError with the first difference."""
    if before.instance.cluster.has_joined_nodes:
        raise PlanError(f"{names[0]}: instance.cluster", "joined nodes", "joined_nodes: 1")
    pair = [(file.instance.workload, file.instance.cluster) for file in (after, before)]
    for problem in unlike(*pair):
        raise PlanError(names[1], problem[:MOST_TEXT], f"the model and machines of {names[0]}")


def unlike(stated: tuple[Workload, Cluster], expected: tuple[Workload, Cluster]) -> tuple[str, ...]:
    """One line per field in which what a switch rests on differs: field, found, expected.

    Sequence length, batch, and what machines cost and compute are left aside.
    """
    findings = Findings()
    findings.compare("instance", _rests_on(*stated), _rests_on(*expected))
    return tuple(findings.problems)


def _rests_on(workload: Workload, cluster: Cluster) -> dict[str, object]:
    """The sizes of tensors; machines and links."""
    runs = tuple(
        {"count": run.count, **{name: getattr(run.layer, name) for name in _LAYER}}
        for run in workload.layer_runs
    )
    groups = tuple(
        {"gpu": group.gpu.name, **{name: getattr(group, name) for name in _GROUP}}
        for group in cluster.groups
    )
    links = {"zone_link": cluster.zone_link, "zone_links": cluster.zone_links}
    sizes = {name: getattr(workload, name) for name in _MODEL}
    return {"workload": {**sizes, "layer_runs": runs}, "cluster": {"groups": groups, **links}}
