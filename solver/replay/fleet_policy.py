"""Policies whose pipelines come from templates: every failure leads to the next fleet.

`oobleck` takes the fleet with the shortest step, as its paper does; `ours` the one that trains most
until the next failure is expected, given what has to be copied for it (`recovery`), and so uses
nodes that join only if that pays by then. Both have the same templates.
"""

from collections.abc import Callable
from dataclasses import replace

from formulations.fleet import Design, Pipeline
from formulations.instance import Instance
from formulations.transition import Links, layer_state_bytes
from solver.fleets.designs import designs_of, fleet_sizes, fleet_templates, generator_for
from solver.fleets.fleet import starting
from solver.fleets.recovery import Horizon, RecoveryError, recover
from solver.fleets.situation import Situation
from solver.fleets.step_times import kinds_of
from solver.interrupt import GRACE_S, NoTimeError
from solver.replay.policy import NO_CHECKPOINTS, Configuration, InFlight, Policy
from solver.replay.published_costs import recovery_of_size
from solver.result import Status
from solver.templates.generate import NoTemplateError, TemplateOptions

#: A horizon in which copying layers counts nothing.
ENDLESS_NS = 10**24


def designs_for(
    instance: Instance, faults: int, time_limit_s: float | None = None
) -> tuple[Design, ...]:
    """The templates of least simulated step that `templates` has too; NoTemplateError, exit code 3.

    Of every mix of nodes of `fleet_sizes`, and those besides that `fleet_templates` adds.
    """
    generator = generator_for(instance, TemplateOptions(time_limit_s=time_limit_s), faults)
    found = fleet_templates(generator, fleet_sizes(generator, faults))
    designs = designs_of(found)
    if generator.interrupted:
        raise KeyboardInterrupt
    if not designs and any(one.status is Status.UNKNOWN for one in found):
        raise NoTimeError("no template found within the limit; raise --time-limit")
    if not designs:
        total = sum(generator.mixes.available)
        raise NoTemplateError(f"no template fits {total} nodes {faults + 1} times; lower --faults")
    return designs


class FleetPlanner:
    """Fleets of one instance that survive `faults` failures as long as the nodes allow it.

    left_s: seconds left for templates and every recovery, which gets GRACE_S more; None: any.
    Raises NoTemplateError or RecoveryError, exit code 3, if the whole cluster does not.
    """

    def __init__(
        self, instance: Instance, faults: int, left_s: Callable[[], float | None] = lambda: None
    ) -> None:
        self.instance = instance
        self.faults = faults
        self._left_s = left_s
        self.designs = designs_for(instance, faults, left_s())
        self.kinds = kinds_of(instance, self.designs)
        starting(instance, self.designs, self.kinds, faults)
        self.micro_batch = self.designs[0].strategy.micro_batch
        self._numbers = {name: i for i, name in enumerate(instance.cluster.node_names)}
        self._links = Links(instance.cluster)
        self._bytes = layer_state_bytes(instance.workload)

    def next(
        self, former: Configuration | None, ready: frozenset[str], horizon: Horizon
    ) -> Configuration | None:
        """The next fleet; None if no template fits. Nothing is copied for the first one."""
        old = () if former is None else self._left_of(former)
        situation = Situation(
            self._links,
            self.instance.cluster.node_groups,
            old,
            tuple(sorted(self._numbers[name] for name in ready)),
            self._bytes,
        )
        templates = [one.template for one in self.designs]
        total = self.instance.workload.global_batch // self.micro_batch
        left_s = self._left_s()
        limit_s = None if left_s is None else left_s + GRACE_S
        try:
            found = recover(situation, templates, self.kinds, self.faults, total, horizon, limit_s)
        except RecoveryError:
            return None
        names = self.instance.cluster.node_names
        copies = found.seating.copies if old else ()
        copying_ns = found.seating.transfer_ns if old else 0
        return Configuration(
            nodes=frozenset(names[i] for pipeline in found.pipelines for i in pipeline.nodes),
            step_ns=found.step_ns,
            pause_ns=0 if found.goes_on else horizon.restart_ns + copying_ns,
            pipelines=found.pipelines,
            loses_state=any(copy.source is None for copy in copies),
        )

    def _left_of(self, former: Configuration) -> tuple[Pipeline, ...]:
        """The former pipelines; nodes that have failed since, even if they are back, are no one."""
        lost = {self._numbers[name]: -1 - i for i, name in enumerate(sorted(former.lost))}
        return tuple(
            replace(one, nodes=tuple(lost.get(node, node) for node in one.nodes))
            for one in former.pipelines
        )


def fleet_policy(
    planner: FleetPlanner, name: str, in_flight: InFlight, pause_ns: int | None, expected_ns: int
) -> Policy:
    """How `name`, oobleck or ours, trains and recovers the planner's instance.

    pause_ns: of a recovery besides copying layers; None: all that was published for a model of this
    size. expected_ns: time to the next failure that `ours` reckons with.
    """
    workload = planner.instance.workload
    usual_ns, recovery, source = recovery_of_size("oobleck", workload.parameters, in_flight)
    restart_ns = usual_ns if pause_ns is None else pause_ns
    horizon = Horizon(expected_ns if name == "ours" else ENDLESS_NS, restart_ns)

    def reconfigure(former: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        return planner.next(former, ready, horizon)

    sources = (
        "step times: fleets of templates, sequences per micro-batch: "
        f"{planner.micro_batch}, {planner.faults + 1} pipelines at least, gradients added up "
        "after the last backward",
        f"costs: {source}" if pause_ns is None else "costs: the stated pause",
        "copies: over the links between nodes, on top",
        NO_CHECKPOINTS,
    )
    return Policy(name, reconfigure, recovery, workload.global_batch, sources)
