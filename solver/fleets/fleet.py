"""Fleets as files: the first one of an instance, and the next one after nodes are lost or join."""

from collections.abc import Iterable, Mapping, Sequence

from formulations.errors import NoPlanError, PlanError
from formulations.fleet import Design, Pipeline
from formulations.instance import Instance
from formulations.instance.documents import suggestion
from formulations.pipelines import Instantiation, InstantiationProblem, PipelineKind
from formulations.units import seconds
from solver.files import sealed
from solver.fleet_document import (
    CopyDocument,
    FleetDocument,
    PipelineDocument,
    RecoveryDocument,
    TemplateClaims,
    pipelines_of,
)
from solver.fleets.distribution import Distribution, least_variance
from solver.fleets.instantiate import instantiate
from solver.fleets.node_assignment import Situation
from solver.fleets.recovery import Horizon, recover
from solver.fleets.step_times import kinds_of


def start_fleet(
    instance: Instance,
    designs: Sequence[Design],
    faults: int,
    *,
    distribution: Distribution = "step-time",
    claims: TemplateClaims | None = None,
) -> FleetDocument:
    """The fleet with the shortest step on all nodes of the cluster; some idle if that is better.

    By variance, its pipelines are the same, and their micro-batches shared out again. claims: of
    the designs, for `verify` to prove. Raises NoPlanError (exit code 3) if `faults` + 1 pipelines
    of these templates do not fit.
    """
    kinds = kinds_of(instance, designs)
    problem, instantiation = starting(instance, designs, kinds, faults)
    if distribution == "variance":
        each = [i for i, count in enumerate(instantiation.counts) for _ in range(count)]
        shares = least_variance([kinds[i].times_ns for i in each], problem.micro_batches)
        instantiation = Instantiation.of(len(kinds), each, shares)
    groups = zip(instance.cluster.first_node, instance.cluster.groups, strict=True)
    free = [[*range(first, first + group.nodes)] for first, group in groups]
    pipelines = list[Pipeline]()
    for design, shares in zip(designs, instantiation.shares, strict=True):
        for share in shares:
            nodes = tuple(free[j].pop(0) for j in design.template.node_groups)
            pipelines.append(Pipeline(design.template, nodes, share))
    return _document(instance, designs, kinds, faults, pipelines, away=set(), claims=claims)


def starting(
    instance: Instance, designs: Sequence[Design], kinds: Sequence[PipelineKind], faults: int
) -> tuple[InstantiationProblem, Instantiation]:
    """The pipelines of `start_fleet` by kind, with their micro-batches. Raises NoPlanError."""
    available = tuple(group.nodes for group in instance.cluster.groups)
    total = instance.workload.global_batch // designs[0].strategy.micro_batch
    problem = InstantiationProblem(tuple(kinds), available, faults, total, all_nodes=False)
    instantiation = instantiate(problem)
    if instantiation is not None:
        return problem, instantiation
    able = [kind for kind in kinds if kind.times_ns]
    if not able:
        raise NoPlanError(
            "templates: none has room for a micro-batch; allowed: smaller ones, or more nodes"
        )
    nodes, fewest = sum(available), min(sum(kind.nodes) for kind in able)
    survivable = min(nodes // fewest, total) - 1
    if survivable < faults:
        raise NoPlanError(
            f"--faults {faults}: {faults + 1} pipelines take {fewest} nodes or more and a "
            f"micro-batch each; the cluster has {nodes} nodes, a step {total} "
            f"micro-batches; allowed: at most {survivable} faults"
        )
    raise NoPlanError(
        f"templates: {faults + 1} or more pipelines cannot take {nodes} nodes and "
        f"{total} micro-batches; allowed: other sizes, fewer faults"
    )


def _document(
    instance: Instance,
    designs: Sequence[Design],
    kinds: Sequence[PipelineKind],
    faults: int,
    pipelines: Sequence[Pipeline],
    *,
    away: set[int],
    claims: TemplateClaims | None,
    recovery: RecoveryDocument | None = None,
) -> FleetDocument:
    names = instance.cluster.node_names
    used = {node for pipeline in pipelines for node in pipeline.nodes}
    templates = [design.template for design in designs]
    steps = [kinds[templates.index(p.template)].times_ns[p.micro_batches - 1] for p in pipelines]
    exchange_ns = max(kinds[templates.index(p.template)].exchange_ns(len(steps)) for p in pipelines)
    step_s = seconds(max(steps) + exchange_ns)
    return sealed(
        FleetDocument(
            faults=faults,
            survives=len(pipelines) - 1,
            designs=tuple(designs),
            templates=claims,
            pipelines=tuple(
                PipelineDocument(
                    design=templates.index(pipeline.template),
                    nodes=tuple(names[node] for node in pipeline.nodes),
                    micro_batches=pipeline.micro_batches,
                    step_time_s=seconds(step),
                )
                for pipeline, step in zip(pipelines, steps, strict=True)
            ),
            idle=tuple(name for n, name in enumerate(names) if n not in used | away),
            away=tuple(name for n, name in enumerate(names) if n in away),
            exchange_s=seconds(exchange_ns),
            step_time_s=step_s,
            throughput_sequences_per_s=instance.workload.global_batch / step_s,
            recovery=recovery,
            instance=instance,
        )
    )


def _numbers(names: Mapping[str, int], chosen: Iterable[str], option: str) -> set[int]:
    """Numbers of the nodes of an option. Raises PlanError for a name that the cluster lacks."""
    numbers = set[int]()
    for name in chosen:
        if name not in names:
            unknown = f"unknown node {name!r}{suggestion(name, list(names))}"
            raise PlanError(option, unknown, f"nodes of the cluster: {_listed(names)}")
        numbers.add(names[name])
    return numbers


def _listed(names: Iterable[str]) -> str:
    each = list(names)
    return ", ".join(each if len(each) <= 8 else [*each[:4], "...", *each[-2:]])


def _away(document: FleetDocument, lost: Sequence[str], joined: Sequence[str]) -> set[int]:
    """Numbers of the nodes that are away afterwards; PlanError as `next_fleet`."""
    names = document.instance.cluster.node_names
    numbers = {name: n for n, name in enumerate(names)}
    gone, back = _numbers(numbers, lost, "--lost"), _numbers(numbers, joined, "--joined")
    away = {numbers[name] for name in document.away}
    if both := gone & back:
        raise PlanError("--joined", f"{names[min(both)]} is lost as well", "one of the two")
    if absent := gone & away:
        allowed = "nodes that the fleet still has"
        raise PlanError("--lost", f"{names[min(absent)]} is lost already", allowed)
    if present := back - away:
        allowed = f"nodes that are lost: {_listed(document.away) or 'none is'}"
        raise PlanError("--joined", f"{names[min(present)]} is still there", allowed)
    return (away | gone) - back


def next_fleet(
    document: FleetDocument,
    lost: Sequence[str],
    joined: Sequence[str],
    horizon: Horizon,
    time_limit_s: float | None = None,
) -> FleetDocument:
    """The fleet that trains most within the horizon, with the nodes lost gone and others back.

    After the time limit the best one found, with its bound. Raises PlanError for nodes that are not
    there to be lost or to join, NoPlanError if no template fits what is left, and NoTimeError.
    """
    instance, designs = document.instance, document.designs
    names, away = instance.cluster.node_names, _away(document, lost, joined)
    ready = (node for node in range(len(names)) if node not in away)
    situation = Situation.of(instance, pipelines_of(document, document.pipelines), ready)
    kinds = kinds_of(instance, designs)
    templates = [design.template for design in designs]
    total, former = document.micro_batches, situation.former
    fleet = recover(situation, templates, kinds, document.faults, total, horizon, time_limit_s)
    recovery = RecoveryDocument(
        before=document.pipelines,
        lost=tuple(lost),
        joined=tuple(joined),
        horizon_s=seconds(horizon.time_ns),
        restart_s=seconds(horizon.restart_ns),
        copies=tuple(
            CopyDocument(
                layer=copy.layer,
                source=None if copy.source is None else names[copy.source],
                replica=None if copy.source is None else former[copy.source],
                target=names[copy.target],
                size_bytes=situation.layer_bytes[copy.layer],
            )
            for copy in fleet.assignment.copies
        ),
        transfer_s=seconds(fleet.assignment.transfer_ns),
        steps=float(fleet.steps),
        steps_bound=float(fleet.bound),
    )
    return _document(
        instance,
        designs,
        kinds,
        document.faults,
        fleet.pipelines,
        away=away,
        claims=document.templates,
        recovery=recovery,
    )


def step_of_all_nodes_ns(document: FleetDocument) -> int | None:
    """Shortest step of fleets that leave no ready node idle; None if there is no such fleet."""
    kinds = kinds_of(document.instance, document.designs)
    faults = min(document.faults, document.survives)
    problem = InstantiationProblem(kinds, document.nodes_left, faults, document.micro_batches)
    instantiation = instantiate(problem)
    return None if instantiation is None else instantiation.step_ns(problem)
