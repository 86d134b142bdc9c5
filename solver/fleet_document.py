"""The file of a fleet: pipelines of templates on named nodes, and how they came to be.

One JSON object. It holds all designs, so that the next fleet can be formed from it alone. `verify`
derives every figure again, except `hetplan_version` and `steps_bound`, which describe the run, and
proves what is claimed of the templates.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from formulations.fleet import Design, Pipeline
from formulations.instance import Instance
from formulations.instance.record import (
    TOO_LONG,
    Batch,
    Bytes,
    Index,
    Name,
    Record,
    Seconds,
    can_be_simulated,
)
from formulations.node_sharing import NodeSplit
from solver.files import Envelope


class TemplateBound(Record):
    """No pipeline of the nodes of a design's template has a shorter step than `bound_s`.

    With so many micro-batches, of one pipeline before the exchange of gradients. step_time_s: that
    of the template.
    """

    design: Index
    micro_batches: Batch
    step_time_s: Seconds
    bound_s: Seconds


class TemplateClaims(Record):
    """What is claimed of the templates of a fleet, among all that share nodes in such a way."""

    split: NodeSplit
    bounds: tuple[TemplateBound, ...]


class PipelineDocument(Record):
    """One pipeline: index of its design, and nodes by the template's positions."""

    design: Index
    nodes: tuple[Name, ...] = Field(min_length=1)
    micro_batches: Batch
    step_time_s: Seconds


class CopyDocument(Record):
    """One layer that a node receives. replica: pipeline, before, of the node that sends it.

    Without a source no node holds the layer any more, and a checkpoint has to be read.
    """

    layer: Index
    source: Name | None
    replica: Index | None
    target: Name
    size_bytes: Bytes


class RecoveryDocument(Record):
    """How the fleet came from another one.

    steps: trained within the horizon, after restart and transfer, or all the time where the fleet
    goes on as it was; steps_bound: no fleet that survives as many faults trains more.
    """

    before: tuple[PipelineDocument, ...]
    lost: tuple[Name, ...]
    joined: tuple[Name, ...]
    horizon_s: Seconds
    restart_s: Seconds
    copies: tuple[CopyDocument, ...]
    transfer_s: Seconds
    steps: Annotated[float, Field(ge=0)]
    steps_bound: Annotated[float, Field(ge=0)]


class FleetDocument(Envelope):
    """Everything that `recover`, `verify` and `show` need.

    faults: failures to survive, as asked for; survives: as there are pipelines for. templates: None
    where nothing is claimed of the designs. idle: nodes
    that are ready and in no pipeline; away: nodes of the cluster that are lost. step_time_s: of the
    slowest pipeline, and then exchange_s, the slowest node's exchange of gradients.
    """

    written_by = "a fleet file written by templates --out or recover --out"
    renewed_by = "run templates again"

    kind: Literal["fleet"] = "fleet"
    schema_version: Literal[8] = 8
    faults: Index
    survives: Index
    designs: tuple[Design, ...] = Field(min_length=1)
    templates: TemplateClaims | None
    pipelines: tuple[PipelineDocument, ...] = Field(min_length=1)
    idle: tuple[Name, ...]
    away: tuple[Name, ...]
    exchange_s: Seconds
    step_time_s: Annotated[Seconds, Field(gt=0)]
    throughput_sequences_per_s: float
    recovery: RecoveryDocument | None
    instance: Instance

    @model_validator(mode="after")
    def _check_extent(self) -> "FleetDocument":
        stages = dict(enumerate(design.template.num_stages for design in self.designs))
        before = () if self.recovery is None else self.recovery.before
        claims = () if self.templates is None else self.templates.bounds
        for pipelines in (self.pipelines, before, claims):
            unlike = {(pipeline.design, pipeline.micro_batches) for pipeline in pipelines}
            passes = sum(stages.get(design, 0) * m for design, m in unlike)
            most_micro_batches = max([self.micro_batches, *(m for _, m in unlike)])
            if not can_be_simulated(1, passes, most_micro_batches):
                raise ValueError(TOO_LONG)
        return self

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step, by the size of the designs."""
        return self.instance.workload.global_batch // self.designs[0].strategy.micro_batch

    @property
    def nodes_left(self) -> tuple[int, ...]:
        """Nodes of every group that are not away."""
        gone = Counter(name.rpartition("-")[0] for name in self.away)
        return tuple(group.nodes - gone[group.name] for group in self.instance.cluster.groups)

    @property
    def goes_on(self) -> bool:
        """Whether the pipelines are those before a recovery, so that nothing starts again."""
        before = () if self.recovery is None else self.recovery.before
        runs = [
            {(p.design, p.nodes, p.micro_batches) for p in ps} for ps in (before, self.pipelines)
        ]
        return runs[0] == runs[1]

    @property
    def training_s(self) -> float:
        """Seconds of a recovery's horizon in which the fleet trains; 0 without a recovery."""
        recovery = self.recovery
        if recovery is None:
            return 0.0
        pause_s = 0.0 if self.goes_on else recovery.restart_s + recovery.transfer_s
        return max(0.0, recovery.horizon_s - pause_s)


def pipelines_of(
    document: FleetDocument, pipelines: Sequence[PipelineDocument]
) -> tuple[Pipeline, ...]:
    """Pipelines of a document with nodes by index; KeyError or IndexError for unknown ones."""
    numbers = {name: n for n, name in enumerate(document.instance.cluster.node_names)}
    return tuple(
        Pipeline(
            document.designs[pipeline.design].template,
            tuple(numbers[name] for name in pipeline.nodes),
            pipeline.micro_batches,
        )
        for pipeline in pipelines
    )
