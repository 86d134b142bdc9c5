"""One optimizer step as rows of bars: a row per stage and group of identical replicas.

A stage is one of the pp, with all its chunks of layers.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from solver.document import PlanDocument, ReplicaDocument, StageDocument
from solver.report.layers import layers_text
from solver.report.quantities import node_ranges, ranges
from solver.simulate import Operation, Step


def replicas_text(replicas: Sequence[int]) -> str:
    """Numbers with their noun: "replica 3", "replicas 0-7"."""
    return f"replica{'s' if len(replicas) > 1 else ''} {ranges(replicas)}"


@dataclass(frozen=True)
class Row:
    """What one stage does during the step, in order, for replicas that do the same."""

    stage: int
    layers: str  #: by name, chunk by chunk
    replicas: tuple[int, ...]
    nodes: str
    gpu_type: str
    bars: tuple[Operation, ...]


def _signature(replica: ReplicaDocument) -> tuple[object, ...]:
    """All that a replica's timeline depends on, besides what its stages share with others."""
    return (
        replica.micro_batches,
        *(
            (s.gpu_type, s.forward_s, s.backward_s, s.weight_gradient_s, s.send_forward_s)
            for s in replica.stages
        ),
    )


def identical_replicas(document: PlanDocument) -> list[tuple[int, ...]]:
    """Replica numbers, grouped by equal timelines."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for r, replica in enumerate(document.replicas):
        groups[_signature(replica)].append(r)
    return [tuple(group) for group in groups.values()]


def stages_of(document: PlanDocument, stage: int, replicas: tuple[int, ...]) -> list[StageDocument]:
    """One stage of some replicas."""
    return [document.replicas[r].stages[stage] for r in replicas]


def rows_of(document: PlanDocument, step: Step) -> list[Row]:
    """Rows by group of replicas, then stage; what all replicas share stands in every group."""
    rows, workload = [], document.instance.workload
    for group in identical_replicas(document):
        bars: dict[int, list[Operation]] = defaultdict(list)
        for operation in (*step.operations(group[0]), *step.tail):
            bars[operation.stage].append(operation)
        for k in range(step.costs.shape.pp):
            stages = stages_of(document, k, group)
            chunks = document.replicas[group[0]].stages[k :: step.costs.shape.pp]
            rows.append(
                Row(
                    stage=k,
                    layers=", ".join(layers_text(workload, range(*one.layers)) for one in chunks),
                    replicas=group,
                    nodes=node_ranges(dict.fromkeys(stage.node for stage in stages)),
                    gpu_type=stages[0].gpu_type,
                    bars=tuple(sorted(bars[k], key=lambda bar: bar.start_ns)),
                )
            )
    return rows
