"""What a fleet file claims of its templates: that no pipeline of their nodes is faster.

Sets. Numbers of stages p; places: a node group with the GPUs of a stage on one of its nodes.
Question. A pipeline on so many nodes of every group, all filled, whose step with m micro-batches is
below a claim: any strategy of the instance, any order of the nodes, any stages on them.
Answer. For every strategy and p such pipelines are plans of one replica whose stages have degrees
of their own, but for three things. Messages take other times there and back (`template_costs`). A
split says where stages may begin on a node. Gradients are exchanged elsewhere. So `refutation`
strikes out what is too slow, and what is left is simulated as in `exhaust`, with these costs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from formulations.costs.intervals import Array
from formulations.costs.template_costs import (
    between_ns,
    stage_tables,
    template_costs,
    template_degrees,
    tied_ns,
)
from formulations.costs.transfers import inside_ns
from formulations.fleet import Design, Strategy, Template
from formulations.instance import Instance
from formulations.instance.record import can_be_simulated
from formulations.node_sharing import NodeSplit, filled, may_start
from formulations.plan import ByPlace, Configuration, Degrees, Plan
from formulations.space.configurations import pipeline_strategies
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.fleet_document import FleetDocument, TemplateBound
from solver.interrupt import Deadline, TimeUp
from solver.simulate import pipeline_step_ns
from solver.verify.cascade import in_turns
from solver.verify.findings import Effort, Findings
from solver.verify.orders import Spots, Used
from solver.verify.stage_degrees import StageGraph, StageTrial


@dataclass(frozen=True)
class PipelineSpace:
    """Pipelines that fill nodes, so many of each group [J], with so many micro-batches."""

    instance: Instance
    split: NodeSplit
    counts: tuple[int, ...]
    micro_batch: int
    micro_batches: int

    @cached_property
    def degrees(self) -> list[tuple[int, ...]]:
        """[J] numbers of GPUs that a stage may have."""
        groups = self.instance.cluster.groups
        return [template_degrees(self.instance, group, self.split) for group in groups]

    @cached_property
    def node_gpus(self) -> list[int]:
        """[J] GPUs of a node that stages fill."""
        pairs = zip(self.instance.cluster.groups, self.degrees, strict=True)
        return [filled(group.gpus_per_node, degrees, self.split) for group, degrees in pairs]

    @cached_property
    def alone(self) -> Instance:
        """The instance with one replica, for which nothing but the pipeline is asked."""
        all_nodes = tuple(group.nodes for group in self.instance.cluster.groups)
        instance = self.instance.on(all_nodes)  # any node may join a pipeline
        return instance.but(
            workload={"global_batch": self.micro_batch * self.micro_batches},
            search={"target": "any", "micro_batches": "even"},
        )

    def configs(self, strategy: Strategy) -> Iterator[Configuration]:
        """Of every number of stages."""
        pairs = [(n, gpus) for n, gpus in zip(self.counts, self.node_gpus, strict=True) if n]
        if not all(gpus for _, gpus in pairs):
            return
        stages = min(sum(n * gpus for n, gpus in pairs), len(self.instance.workload.layers))
        for p in range(sum(self.counts), stages + 1):
            yield Configuration(
                degrees=(),
                dp=1,
                pp=p,
                micro_batch=strategy.micro_batch,
                schedule=strategy.schedule,
                recompute=strategy.recompute,
                zero=0,
                nodes_used=self.counts,
            )


class TemplateGraph(StageGraph):
    """All ways to place the stages of pipelines of one configuration."""

    def __init__(self, space: PipelineSpace, strategy: Strategy, config: Configuration) -> None:
        self.space, self.strategy = space, strategy
        used = [j for j, count in enumerate(space.counts) if count]
        places = tuple((j, Degrees(tp=g)) for j in used for g in space.degrees[j])
        super().__init__(ByPlace(space.alone, config, places, tuple(space.node_gpus)))
        self.by_gpus = {
            degrees.tp: stage_tables(space.instance, strategy, degrees.tp, config.pp)
            for _, degrees in places
        }

    def _placed(self, k: int, used: Used, before: Spots) -> Iterator[tuple[Used, Spots]]:
        for more, (spot,) in super()._placed(k, used, before):
            if may_start(self.space.split, self._gpus(spot.group)[1], spot.start):
                yield more, (spot,)

    def _sends_ns(self, k: int, before: Spots, spots: Spots) -> list[tuple[int, ...]]:
        message_ns = self._message_ns(before, spots, spots[0].group)
        return [(message_ns,) * len(self.tables.tensors)]

    def _message_ns(self, before: Spots, spots: Spots, receiver: int) -> int:
        """One message over the border that a stage has to the one before; 0 before the first."""
        if not before:
            return 0
        (i, _), (j, _) = (self.places[place] for ((place, _),) in (before, spots))
        tables = self.by_gpus[self.places[receiver][1].tp]
        if spots[0].start:
            return inside_ns(tables, i, tables.tensors[-1])
        return between_ns(tables, i, j)

    def _sends_back(self, k: int, pairs: Sequence[tuple[Spots, Spots]]) -> Array | None:
        times = [[self._message_ns(*pair, pair[0][0].group)] if k else [0] for pair in pairs]
        return np.array(times, dtype=np.int64).reshape(len(pairs), 1)

    def _embedding_ns(self, place: int) -> int:
        j, degrees = self.places[place]
        across = self.space.instance.cluster.links_among(j for j, _ in self.places)
        return tied_ns(self.by_gpus[degrees.tp], j, across)[sum(self.space.counts) > 1]

    def template(self, plan: Plan) -> Template:
        """The pipeline of a plan."""
        stages = plan.replicas[0].stages
        numbers = {node: n for n, node in enumerate(dict.fromkeys(s.group.node for s in stages))}
        groups = self.cluster.node_groups
        return Template(
            node_groups=tuple(groups[node] for node in numbers),
            stages=tuple(
                stage.but(group=stage.group.but(node=numbers[stage.group.node])) for stage in stages
            ),
        )


class TemplateTrial(StageTrial):
    """The pipelines of one configuration against one claim."""

    def __init__(self, graph: TemplateGraph, below_ns: int, clock: Deadline) -> None:
        super().__init__(graph, below_ns, clock)
        self.template_graph = graph

    def priced(self, plan: Plan) -> tuple[int, bool]:
        """Its step as a pipeline of a fleet."""
        graph, m = self.template_graph, self.stages.total
        costs = template_costs(graph.space.instance, graph.strategy, graph.template(plan))
        return pipeline_step_ns(costs, m), costs.fits(m)


Faster = tuple[Design, int]  #: a pipeline, and its step in ns


def faster_template(space: PipelineSpace, below_ns: int, clock: Deadline) -> Faster | None:
    """A pipeline with a step below this, ns, and its step; None if there is none.

    Raises TimeUp, also where there are too many pipelines.
    """
    for strategy in pipeline_strategies(space.instance, space.micro_batch):
        for config in space.configs(strategy):
            clock.check()
            graph = TemplateGraph(space, strategy, config)
            m = space.micro_batches
            if graph.steps is None or not can_be_simulated(config.pp, m, m):
                raise TimeUp
            outcome = TemplateTrial(graph, below_ns, clock).outcome()
            if outcome.plan is not None and outcome.step_time_ns is not None:
                template = graph.template(outcome.plan)
                return Design(template=template, strategy=strategy), outcome.step_time_ns
    return None


def check_sharing(document: FleetDocument, findings: Findings) -> None:
    """Degrees are those that the instance lists; of claimed templates, nodes are shared as said."""
    claims, instance = document.templates, document.instance
    split = NodeSplit.ANY if claims is None else claims.split
    groups = instance.cluster.groups
    degrees = [template_degrees(instance, group, split) for group in groups]
    for n, design in enumerate(document.designs):
        template, filled_to = design.template, dict[int, int]()
        for k, stage in enumerate(template.stages):
            field, node = f"designs[{n}].template.stages[{k}]", stage.group.node
            gpus, start = stage.degrees.tp, stage.group.gpus[0]
            allowed = degrees[template.group_of(stage)]
            findings.require(gpus in allowed, field, f"{gpus} GPUs", f"one of {list(allowed)}")
            follows = start == filled_to.get(node, 0) and may_start(split, gpus, start)
            text = f"no GPU left out before it, and an offset of the {split} split"
            findings.require(claims is None or follows, field, f"GPUs from {start} on", text)
            filled_to[node] = start + gpus
        for node, end in filled_to.items() if claims else ():
            j, field = template.node_groups[node], f"designs[{n}].template"
            gpus = filled(groups[j].gpus_per_node, degrees[j], split)
            findings.require(end == gpus, field, f"{end} GPUs of node {node}", f"{gpus}")


def check_steps(document: FleetDocument, findings: Findings) -> None:
    """The steps that claims are about, and no bound above them."""
    number = len(document.designs)
    for n, claim in enumerate(_claims(document)):
        field, i = f"templates.bounds[{n}]", claim.design
        if not findings.require(i < number, f"{field}.design", i, f"below {number}"):
            continue
        design, m = document.designs[i], claim.micro_batches
        costs = template_costs(document.instance, design.strategy, design.template)
        findings.require(costs.fits(m), f"{field}.micro_batches", m, "as many as fit")
        step_s = seconds(pipeline_step_ns(costs, m))
        findings.close(f"{field}.step_time_s", claim.step_time_s, step_s)
        findings.at_most(f"{field}.bound_s", claim.bound_s, step_s)


def prove_claims(document: FleetDocument, effort: Effort, findings: Findings) -> None:
    """Proves every claim again; says which were not proved, and what is not claimed."""
    claims, instance, bounds = document.templates, document.instance, _claims(document)
    asked = [(n, claims.split) for n in range(len(bounds))] if claims is not None else []

    def settle(task: tuple[int, NodeSplit], clock: Deadline) -> tuple[int, Faster | None]:
        n, split = task
        claim, design = bounds[n], document.designs[bounds[n].design]
        counts = design.template.counts(len(instance.cluster.groups))
        micro_batch = design.strategy.micro_batch
        space = PipelineSpace(instance, split, counts, micro_batch, claim.micro_batches)
        below_ns = round(claim.bound_s * NANOSECONDS_PER_SECOND)
        return n, faster_template(space, below_ns, clock)

    num_proved, at_word = 0, set(range(len(bounds)))
    for n, faster in in_turns(asked if effort.prove == "all" else [], settle, effort):
        at_word.discard(n)
        num_proved += faster is None
        if faster is not None:
            layers = [stage.layers[1] for stage in faster[0].template.stages]
            text = f"at most {seconds(faster[1])}, the step of stages that end with layers {layers}"
            findings.refuse(f"templates.bounds[{n}].bound_s", bounds[n].bound_s, text)
    if num_proved:
        findings.note(f"no pipeline is faster than claimed of {num_proved} templates")
    for n in sorted(at_word):
        findings.reserve(f"templates.bounds[{n}], at the word of the search")
    claimed = {claim.design for claim in bounds}
    if rest := [n for n in range(len(document.designs)) if n not in claimed]:
        findings.reserve(f"that no pipeline is faster, which is not claimed of designs {rest}")


def _claims(document: FleetDocument) -> tuple[TemplateBound, ...]:
    return () if document.templates is None else document.templates.bounds
