"""Fleets as files: the first one of an instance, and the next one after nodes are lost or join."""

from collections.abc import Iterable, Mapping, Sequence

from formulations.errors import PlanError
from formulations.fleet import Design, Pipeline
from formulations.instance import Instance
from formulations.instance.documents import suggestion
from formulations.pipelines import Instantiation, InstantiationProblem, PipelineKind
from formulations.transition import Links, layer_state_bytes
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
from solver.fleets.recovery import Horizon, Recovery, RecoveryError, recover
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
    the designs, for `verify` to prove. Raises RecoveryError (exit code 3) if `faults` + 1 pipelines
    of these templates do not fit.
    """
    kinds = kinds_of(instance, designs)
    problem, found = starting(instance, designs, kinds, faults)
    if distribution == "variance":
        found = _by_variance(problem, found)
    free = [[*range(first, first + n)] for first, n in _groups(instance)]
    pipelines = list[Pipeline]()
    for design, shares in zip(designs, found.shares, strict=True):
        for share in shares:
            nodes = tuple(free[j].pop(0) for j in design.template.node_groups)
            pipelines.append(Pipeline(design.template, nodes, share))
    return _document(instance, designs, kinds, faults, pipelines, away=set(), claims=claims)


def starting(
    instance: Instance,
    designs: Sequence[Design],
    kinds: Sequence[PipelineKind],
    faults: int,
) -> tuple[InstantiationProblem, Instantiation]:
    """The pipelines of `start_fleet` by kind, with their micro-batches. Raises RecoveryError."""
    available = tuple(group.nodes for group in instance.cluster.groups)
    total = instance.workload.global_batch // designs[0].strategy.micro_batch
    problem = InstantiationProblem(tuple(kinds), available, faults, total, all_nodes=False)
    found = instantiate(problem)
    if found is None:
        raise RecoveryError(_reason(problem))
    return problem, found


def _by_variance(problem: InstantiationProblem, found: Instantiation) -> Instantiation:
    """The same pipelines, with steps of least variance."""
    kinds = [i for i, count in enumerate(found.counts) for _ in range(count)]
    shares = least_variance([problem.kinds[i].times_ns for i in kinds], problem.micro_batches)
    own: list[list[int]] = [[] for _ in problem.kinds]
    for i, share in zip(kinds, shares, strict=True):
        own[i].append(share)
    return Instantiation(tuple(tuple(sorted(one, reverse=True)) for one in own))


def _reason(problem: InstantiationProblem) -> str:
    """Why no fleet fits the nodes of the cluster."""
    able = [kind for kind in problem.kinds if kind.times_ns]
    if not able:
        return "templates: none has room for a micro-batch; allowed: smaller ones, or more nodes"
    nodes, least = sum(problem.available), min(sum(kind.nodes) for kind in able)
    pipelines, most = problem.faults + 1, min(nodes // least, problem.micro_batches) - 1
    if most < problem.faults:
        return (
            f"--faults {problem.faults}: {pipelines} pipelines take {least} nodes or more and a "
            f"micro-batch each; the cluster has {nodes} nodes, a step {problem.micro_batches} "
            f"micro-batches; allowed: at most {most} faults"
        )
    return (
        f"templates: {pipelines} or more pipelines cannot take {nodes} nodes and "
        f"{problem.micro_batches} micro-batches; allowed: other sizes, fewer faults"
    )


def _groups(instance: Instance) -> Iterable[tuple[int, int]]:
    cluster = instance.cluster
    return zip(cluster.first_node, (group.nodes for group in cluster.groups), strict=True)


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
    used = {node for one in pipelines for node in one.nodes}
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
                    design=templates.index(one.template),
                    nodes=tuple(names[node] for node in one.nodes),
                    micro_batches=one.micro_batches,
                    step_time_s=seconds(step),
                )
                for one, step in zip(pipelines, steps, strict=True)
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


def _known(names: Mapping[str, int], chosen: Iterable[str], option: str) -> set[int]:
    """Numbers of the nodes of an option. Raises PlanError for a name that the cluster lacks."""
    numbers = set[int]()
    for name in chosen:
        if name not in names:
            found = f"unknown node {name!r}{suggestion(name, list(names))}"
            raise PlanError(option, found, f"nodes of the cluster: {_some(names)}")
        numbers.add(names[name])
    return numbers


def _some(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known if len(known) <= 8 else [*known[:4], "...", *known[-2:]])


def next_fleet(
    document: FleetDocument,
    lost: Sequence[str],
    joined: Sequence[str],
    horizon: Horizon,
    time_limit_s: float | None = None,
) -> FleetDocument:
    """The fleet that trains most within the horizon, with the nodes lost gone and others back.

    After the time limit the best one found, with its bound. Raises PlanError for nodes that are not
    there to be lost or to join, RecoveryError if no template fits what is left, and NoTimeError.
    """
    instance, designs = document.instance, document.designs
    names = {name: n for n, name in enumerate(instance.cluster.node_names)}
    gone, back = _known(names, lost, "--lost"), _known(names, joined, "--joined")
    away = {names[name] for name in document.away}
    _check(document, gone & away, back - away, gone & back)
    away = (away | gone) - back
    old = pipelines_of(document, document.pipelines)
    situation = Situation(
        Links(instance.cluster),
        instance.cluster.node_groups,
        old,
        tuple(node for node in names.values() if node not in away),
        layer_state_bytes(instance.workload),
    )
    kinds = kinds_of(instance, designs)
    templates = [design.template for design in designs]
    total = document.micro_batches
    found = recover(situation, templates, kinds, document.faults, total, horizon, time_limit_s)
    return _document(
        instance,
        designs,
        kinds,
        document.faults,
        found.pipelines,
        away=away,
        claims=document.templates,
        recovery=_recovery(document, situation, found, horizon, (tuple(lost), tuple(joined))),
    )


def _check(document: FleetDocument, gone: set[int], there: set[int], both: set[int]) -> None:
    names = document.instance.cluster.node_names
    if both:
        raise PlanError("--joined", f"{names[min(both)]} is lost as well", "one of the two")
    if gone:
        raise PlanError(
            "--lost", f"{names[min(gone)]} is lost already", "nodes that the fleet still has"
        )
    if there:
        allowed = f"nodes that are lost: {_some(document.away) or 'none is'}"
        raise PlanError("--joined", f"{names[min(there)]} is still there", allowed)


def _recovery(
    document: FleetDocument,
    situation: Situation,
    found: Recovery,
    horizon: Horizon,
    changes: tuple[tuple[str, ...], tuple[str, ...]],
) -> RecoveryDocument:
    names, former = document.instance.cluster.node_names, situation.former
    return RecoveryDocument(
        before=document.pipelines,
        lost=changes[0],
        joined=changes[1],
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
            for copy in found.assignment.copies
        ),
        transfer_s=seconds(found.assignment.transfer_ns),
        steps=float(found.steps),
        steps_bound=float(found.bound),
    )


def step_of_all_nodes_ns(document: FleetDocument) -> int | None:
    """Shortest step of fleets that leave no ready node idle; None if there is no such fleet."""
    kinds = kinds_of(document.instance, document.designs)
    faults = min(document.faults, document.survives)
    problem = InstantiationProblem(kinds, document.nodes_left, faults, document.micro_batches)
    found = instantiate(problem)
    return None if found is None else found.step_ns(problem)
