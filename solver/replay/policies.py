"""The policies that an instance is replayed with; plans and templates are made when one asks.

`ours`: pipelines come from templates, and every failure leads to the fleet that trains most until
the next one is expected, given what has to be copied for it (`recovery`). So it uses nodes that
join only if that pays by then. `restart` and `redundancy` train the best plan for the nodes that
are ready. Their costs are those that Oobleck's authors measured of Varuna and Bamboo.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from formulations.errors import NoPlanError, PlannerError
from formulations.fleet import Pipeline
from formulations.instance import Instance
from formulations.instance.instance import NODE_READY_S, measured_recovery
from formulations.units import ceil_div, ceil_ns
from solver.fleets.designs import designs_of, fleet_sizes, fleet_templates, generator_for
from solver.fleets.fleet import starting
from solver.fleets.node_assignment import Situation
from solver.fleets.recovery import Horizon, recover
from solver.fleets.step_times import kinds_of
from solver.interrupt import Deadline, NoTimeError
from solver.options import PolicyName, SolveOptions
from solver.replay.policy import Checkpoints, Configuration, InFlight, Policy, Recovery
from solver.replay.trace import Trace
from solver.result import Result, Status, Termination
from solver.search.driver import solve
from solver.search.plan_search import Report
from solver.templates.generate import TemplateOptions

CHECKPOINT_EVERY_STEPS = 10
SLOWDOWN_PERCENT = 150
FATAL_PAUSE_S = 30.0
#: A neighbour computes the forward pass of its successor's layers too: one part in three of forward
#: and backward is done twice.
REDUNDANT_WORK = (4, 3)
NO_DEADLINE = Deadline(None)
#: What reports say of policies without checkpoints.
NO_CHECKPOINTS = "no checkpoints: where no node is left that holds some layer, training begins anew"


def recovery_of_size(
    policy: PolicyName, parameters: int, in_flight: InFlight
) -> tuple[int, Recovery, str]:
    """Pause after a failure, in ns, the rules of `policy`, and where these figures come from."""
    costs, source = measured_recovery(parameters)
    ready_ns = ceil_ns(NODE_READY_S)
    if policy == "ours":
        pause_s, recovery = costs.oobleck_s, Recovery(in_flight, None, ready_ns)
    elif policy == "restart":
        time_ns = ceil_ns(costs.varuna_checkpoint_s)
        checkpoints = Checkpoints(CHECKPOINT_EVERY_STEPS, time_ns)
        pause_s, recovery = costs.varuna_restart_s, Recovery(in_flight, checkpoints, ready_ns)
    else:
        fatal_ns = ceil_ns(FATAL_PAUSE_S)
        pause_s = costs.bamboo_rebalance_s
        recovery = Recovery("slowed", None, ready_ns, SLOWDOWN_PERCENT, fatal_ns)
    return ceil_ns(pause_s), recovery, source


class FleetPlanner:
    """Fleets of one instance that survive `faults` failures as long as the nodes allow it.

    designs: the templates of least simulated step that `templates` has too, of every mix of nodes
    of `fleet_sizes`, and those besides that `fleet_templates` adds.

    deadline: of templates and every recovery, which gets GRACE_S more. Raises NoPlanError, exit
    code 3, if the whole cluster does not survive so many.
    """

    def __init__(self, instance: Instance, faults: int, deadline: Deadline = NO_DEADLINE) -> None:
        self.instance = instance
        self.faults = faults
        self._deadline = deadline
        options = TemplateOptions(time_limit_s=deadline.left_s)
        generator = generator_for(instance, options, faults)
        entries = fleet_templates(generator, fleet_sizes(generator, faults))
        self.designs = designs_of(entries)
        if generator.clock.interrupted:
            raise KeyboardInterrupt
        if not self.designs and any(entry.status is Status.UNKNOWN for entry in entries):
            raise NoTimeError("no template found within the limit; raise --time-limit")
        if not self.designs:
            nodes = sum(generator.mixes.available)
            fault = f"no template fits {nodes} nodes {faults + 1} times; lower --faults"
            raise NoPlanError(fault)
        self.kinds = kinds_of(instance, self.designs)
        starting(instance, self.designs, self.kinds, faults)
        self.micro_batch = self.designs[0].strategy.micro_batch
        self._numbers = {name: i for i, name in enumerate(instance.cluster.node_names)}

    def next(
        self, former: Configuration | None, ready: frozenset[str], horizon: Horizon
    ) -> Configuration | None:
        """The next fleet; None if no template fits. Nothing is copied for the first one."""
        before = list[Pipeline]()
        if former is not None:  # nodes that have failed since, even if they are back, are no one
            lost = {self._numbers[name]: -1 - i for i, name in enumerate(sorted(former.lost))}
            for pipeline in former.pipelines:
                nodes = tuple(lost.get(node, node) for node in pipeline.nodes)
                before.append(replace(pipeline, nodes=nodes))
        numbers = sorted(self._numbers[name] for name in ready)
        situation = Situation.of(self.instance, before, numbers)
        templates = [design.template for design in self.designs]
        total = self.instance.workload.global_batch // self.micro_batch
        try:
            fleet = recover(
                situation, templates, self.kinds, self.faults, total, horizon, self._deadline.end_s
            )
        except NoPlanError:
            return None
        names = self.instance.cluster.node_names
        copying_ns = fleet.assignment.transfer_ns if before else 0
        return Configuration(
            nodes=frozenset(names[i] for pipeline in fleet.pipelines for i in pipeline.nodes),
            step_ns=fleet.step_ns,
            pause_ns=0 if fleet.goes_on else horizon.restart_ns + copying_ns,
            pipelines=fleet.pipelines,
            loses_state=any(copy.source is None for copy in fleet.assignment.copies if before),
        )


@dataclass(frozen=True)
class Planner:
    """The best plan for every number of nodes per group, found when it is first asked for.

    deadline: of all plans together. results: by these numbers.
    """

    instance: Instance
    options: SolveOptions
    report: Report | None
    deadline: Deadline
    results: dict[tuple[int, ...], Result] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """How many plans were made so far, and how good they are proved to be."""
        results = self.results.values()
        proved = sum(result.status is not Status.FEASIBLE for result in results)
        if proved == len(results):
            return f"{proved} plans, all proved to be the best"
        gap = max(result.gap or 0.0 for result in results)
        return f"{len(results)} plans, {proved} proved to be the best, largest gap {gap:.2%}"

    def plan(self, ready: frozenset[str]) -> tuple[frozenset[str], int] | None:
        """Nodes used and step time of the best plan on these nodes; None: there is none.

        Raises NoTimeError, exit code 4.
        """
        cluster, groups = self.instance.cluster, self.instance.cluster.groups
        of_group: list[list[str]] = [[] for _ in groups]
        for node, group in zip(cluster.node_names, cluster.node_groups, strict=True):
            of_group[group] += [node] if node in ready else []
        counts = tuple(map(len, of_group))
        if not any(counts):
            return None
        if counts not in self.results:
            options = replace(self.options, time_limit_s=self.deadline.left_s)
            result = solve(self.instance.with_nodes(counts), options, self.report)
            if result.termination is Termination.INTERRUPTED:
                raise KeyboardInterrupt
            if result.status is Status.UNKNOWN:
                pairs = zip(counts, groups, strict=True)
                parts = ", ".join(f"{count} {nodes.name}" for count, nodes in pairs)
                raise NoTimeError(f"no plan found for {parts} within the limit; raise --time-limit")
            self.results[counts] = result
        result = self.results[counts]
        if result.plan is None or result.step_time_ns is None:
            return None
        present = [nodes for nodes in of_group if nodes]
        used = zip(result.plan.config.nodes_used, present, strict=True)
        nodes = frozenset(node for count, names in used for node in names[:count])
        return nodes, result.step_time_ns


@dataclass(frozen=True)
class PolicyOptions:
    """What may be chosen.

    faults: failures at once that ours is to survive. pause_ns: after a failure; None: as published
    for a model of this size. horizon_ns: time to the next failure that ours reckons with; None: the
    run divided by its failures, the end counted as one. search: for the plans of the others; its
    time limit is for all that is planned.
    """

    in_flight: InFlight = "lost"
    faults: int = 1
    pause_ns: int | None = None
    horizon_ns: int | None = None
    search: SolveOptions = field(default_factory=SolveOptions)


class InstancePolicies:
    """Policies of one instance."""

    def __init__(self, instance: Instance, options: PolicyOptions, report: Report | None) -> None:
        self.instance = instance
        self.options = options
        self._report = report
        self._planners: dict[str, Planner] = {}
        self.deadline = Deadline(options.search.time_limit_s)

    def of(self, name: PolicyName, trace: Trace, horizon_ns: int | None = None) -> Policy:
        """How the policy of that name trains and recovers the instance in a run of `trace`.

        horizon_ns: in place of the chosen one. With redundancy a step takes 4/3 of the time, for
        the redundant forward passes; that they may hide in bubbles is left out. Raises NoPlanError,
        exit code 3.
        """
        chosen, workload = self.options, self.instance.workload
        usual_ns, recovery, source = recovery_of_size(name, workload.parameters, chosen.in_flight)
        pause_ns = usual_ns if chosen.pause_ns is None else chosen.pause_ns
        if name == "ours":
            failures = sum(event.kind == "fail" for event in trace.events)
            expected_ns = horizon_ns or chosen.horizon_ns or trace.end_ns // (failures + 1)
            fleets = self.fleets
            sources = [
                "step times: fleets of templates, sequences per micro-batch: "
                f"{fleets.micro_batch}, {fleets.faults + 1} pipelines at least, gradients added up "
                "after the last backward",
                f"costs: {source}" if chosen.pause_ns is None else "costs: the stated pause",
                "copies: over the links between nodes, on top",
                NO_CHECKPOINTS,
            ]
            next_fleet = partial(fleets.next, horizon=Horizon(expected_ns, pause_ns))
            return Policy(next_fleet, recovery, workload.global_batch, tuple(sources))

        planner = self._planner(name)
        numerator, denominator = REDUNDANT_WORK if name == "redundancy" else (1, 1)

        def next_plan(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
            best = planner.plan(ready)
            if best is None:
                return None
            nodes, step_ns = best
            return Configuration(nodes, ceil_div(step_ns * numerator, denominator), pause_ns)

        plans = "step times: best plan of every number of nodes, replicas alike"
        sources = [plans, f"costs: {source}"]
        if recovery.checkpoints is None:
            sources += ["memory: half for the layers of a node's successor", NO_CHECKPOINTS]
        return Policy(next_plan, recovery, workload.global_batch, tuple(sources))

    def _planner(self, name: PolicyName) -> Planner:
        """Of the plans of a policy.

        Redundancy survives failures without checkpoints: layers of a node's successor take as much
        memory again, so that plans have half of it. Parts of an optimizer state would be lost with
        their node.
        """
        if name not in self._planners:
            instance = self.instance
            if name == "redundancy":
                free = (1 + instance.limits.memory_headroom) / 2
                instance = instance.but(search={"zero": (0,)}, limits={"memory_headroom": free})
            search = self.options.search
            self._planners[name] = Planner(instance, search, self._report, self.deadline)
        return self._planners[name]

    @property
    def summary(self) -> str | None:
        """How good the plans made so far are proved to be; None without any."""
        made = [f"{name}: {planner.summary}" for name, planner in self._planners.items()]
        return "; ".join(made) if made else None

    @cached_property
    def fleets(self) -> FleetPlanner:
        """The fleets of ours."""
        nodes = sum(group.nodes for group in self.instance.cluster.groups)
        if self.options.faults >= nodes:
            raise PlannerError(
                f"--faults {self.options.faults}; allowed: 0 to {nodes - 1}, as there are {nodes} "
                "nodes"
            )
        return FleetPlanner(self.instance, self.options.faults, self.deadline)
