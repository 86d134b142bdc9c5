"""Policies for an instance: step times from a plan for every set of nodes that is left."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from formulations.instance import Instance
from formulations.units import ceil_div
from solver.interrupt import NoTimeError
from solver.options import SolveOptions
from solver.replay.policy import NO_CHECKPOINTS, Configuration, InFlight, Policy
from solver.replay.published_costs import recovery_of_size
from solver.result import Result, Status, Termination
from solver.search.driver import solve
from solver.search.progress import Report


def instance_with(instance: Instance, counts: Sequence[int]) -> Instance:
    """The instance with so many nodes in each group; groups without nodes are left out."""
    cluster = instance.cluster
    groups = tuple(
        group.but(nodes=count) for group, count in zip(cluster.groups, counts, strict=True) if count
    )
    return instance.but(cluster=cluster.with_groups(groups))


def whole_states(instance: Instance) -> Instance:
    """The instance without plans that split optimizer states among replicas.

    Of those, the part of a lost node is nowhere else.
    """
    return instance.but(search={"zero": (0,)})


class Planner:
    """The best plan for every number of nodes per group, found when it is first asked for.

    left_s: seconds left for all plans together; None: each has the limit of the options.
    """

    def __init__(
        self,
        instance: Instance,
        options: SolveOptions,
        report: Report | None = None,
        left_s: Callable[[], float | None] | None = None,
    ) -> None:
        self.instance = instance
        self._options = options
        self._report = report
        self._left_s = left_s
        self._results: list[Result] = []
        cluster = instance.cluster
        self._nodes = tuple(zip(cluster.node_names, cluster.node_groups, strict=True))
        self.result = cache(self._result)

    def _result(self, counts: tuple[int, ...]) -> Result:
        options = self._options
        if self._left_s is not None:
            options = replace(options, time_limit_s=self._left_s())
        result = solve(instance_with(self.instance, counts), options, self._report)
        if result.termination is Termination.INTERRUPTED:
            raise KeyboardInterrupt
        if result.status is Status.UNKNOWN:
            parts = ", ".join(
                f"{count} {group.name}"
                for count, group in zip(counts, self.instance.cluster.groups, strict=True)
            )
            raise NoTimeError(f"no plan found for {parts} within the limit; raise --time-limit")
        self._results.append(result)
        return result

    @property
    def summary(self) -> str:
        """How many plans were made so far, and how good they are proved to be."""
        proved = sum(result.status is not Status.FEASIBLE for result in self._results)
        if proved == len(self._results):
            return f"{proved} plans, all proved to be the best"
        gap = max(result.gap or 0.0 for result in self._results)
        return f"{len(self._results)} plans, {proved} proved to be the best, largest gap {gap:.2%}"

    def plan(self, ready: frozenset[str]) -> tuple[frozenset[str], int] | None:
        """Nodes used and step time of the best plan on these nodes; None: there is none."""
        of_group: list[list[str]] = [[] for _ in self.instance.cluster.groups]
        for node, group in self._nodes:
            if node in ready:
                of_group[group].append(node)
        counts = tuple(map(len, of_group))
        result = self.result(counts) if any(counts) else None
        if result is None or result.plan is None or result.step_time_ns is None:
            return None
        present = [nodes for nodes in of_group if nodes]
        used = zip(result.plan.shape.nodes_used, present, strict=True)
        nodes = frozenset(node for count, group in used for node in group[:count])
        return nodes, result.step_time_ns


#: Bamboo computes the forward pass of its successor's layers too: one part in three of forward and
#: backward is done twice.
_REDUNDANCY = (4, 3)


def planned_policy(
    planner: Planner, name: str, in_flight: InFlight, pause_ns: int | None = None
) -> Policy:
    """How `name` trains and recovers the planner's instance.

    name: varuna or bamboo. Every configuration is the best plan for the nodes that are ready.
    pause_ns: after a failure; None: as published for a model of this size. Bamboo's step takes 4/3
    of the time, for the redundant forward passes; that they may hide in bubbles, and the memory of
    the redundant layers, are left out. It survives failures without checkpoints, so its planner
    should be of `whole_states`.
    """
    workload = planner.instance.workload
    usual_ns, recovery, source = recovery_of_size(name, workload.parameters, in_flight)
    numerator, denominator = _REDUNDANCY if name == "bamboo" else (1, 1)

    def reconfigure(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        found = planner.plan(ready)
        if found is None:
            return None
        nodes, step_ns = found
        step_ns = ceil_div(step_ns * numerator, denominator)
        return Configuration(nodes, step_ns, usual_ns if pause_ns is None else pause_ns)

    sources = ["step times: best plan of every number of nodes, replicas alike", f"costs: {source}"]
    if recovery.checkpoints is None:
        sources.append(NO_CHECKPOINTS)
    return Policy(name, reconfigure, recovery, workload.global_batch, tuple(sources))
