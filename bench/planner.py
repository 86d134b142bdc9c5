"""Inputs and outputs of Oobleck's public planner (SymbioticLab/Oobleck), as stored beside them.

Files give milliseconds and bytes per layer; here times are whole picoseconds, in which every
figure of the files, and its half, quarter and eighth, is a whole number. A stage of g GPUs takes
1/g of its layers' times and the g-GPU all-reduce of every layer, forward and backward alike
(pipeline_template.cpp, StageExecutionResult).
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from bench.records import json_of
from formulations.costs.intervals import interval_sums
from formulations.costs.stage_costs import NEVER
from formulations.fleet import NOTHING, Template, stage_on
from formulations.node_sharing import NodeSplit, filled
from formulations.plan import Recomputed
from solver.graph.places import Places
from solver.graph.problem import Array

PS_PER_MS = 10**9
#: Memory is never checked by that planner; so many micro-batches always fit.
ALWAYS_FIT = 1 << 40


@dataclass(frozen=True)
class PlannerLayer:
    """One layer: milliseconds as written, all-reduce per number of GPUs of a node."""

    forward_ms: Fraction
    backward_ms: Fraction
    all_reduce_ms: dict[int, Fraction]

    def times_ps(self, gpus: int) -> tuple[int, int]:
        """Forward and backward on so many GPUs of one node, rounded up."""
        traffic = self.all_reduce_ms[gpus]
        both = (self.forward_ms, self.backward_ms)
        forward, backward = (ceil((own / gpus + traffic) * PS_PER_MS) for own in both)
        return forward, backward


@dataclass(frozen=True)
class PlannerTemplate:
    """What the planner answered for so many nodes, and the objective that it gave itself."""

    template: Template
    reported_ms: float


@dataclass(frozen=True)
class PlannerCase:
    """One file."""

    name: str
    layers: tuple[PlannerLayer, ...]
    max_nodes: int
    gpus_per_node: int
    wall_s: float
    templates: dict[int, PlannerTemplate]

    def resized(self, num_layers: int) -> "PlannerCase":
        """The same with another number of layers: those between first and last repeat."""
        inner = self.layers[1:-1]
        middle = [inner[i % len(inner)] for i in range(num_layers - 2)]
        layers = (self.layers[0], *middle, self.layers[-1])
        return PlannerCase(f"L{num_layers}", layers, self.max_nodes, self.gpus_per_node, 0.0, {})


def _layer(fields: dict[str, Any]) -> PlannerLayer:
    return PlannerLayer(
        forward_ms=Fraction(str(fields["forward"])),
        backward_ms=Fraction(str(fields["backward"])),
        all_reduce_ms={
            int(g): Fraction(str(time)) for g, time in fields["allreduce_in_node"].items()
        },
    )


def _template(fields: dict[str, Any], gpus_per_node: int) -> PlannerTemplate:
    counts = [stage["num_gpus"] for stage in fields["stages"]]
    begins = np.concatenate([[0], np.cumsum(counts)])
    stages = tuple(
        stage_on(
            layers=(stage["layers"][0], stage["layers"][1]),
            node=int(first // gpus_per_node),
            first_gpu=int(first % gpus_per_node),
            gpus=int(end - first),
        )
        for stage, (first, end) in zip(fields["stages"], pairwise(begins), strict=True)
    )
    template = Template(node_groups=(0,) * fields["num_nodes"], stages=stages)
    return PlannerTemplate(template, fields["iteration_time_reported_ms"])


def read_case(path: Path) -> PlannerCase:
    """The case of one file."""
    fields = json_of(path)
    gpus = fields["case"]["gpus_per_node"]
    return PlannerCase(
        name=path.stem,
        layers=tuple(_layer(layer) for layer in fields["profile"]),
        max_nodes=fields["case"]["max_nodes"],
        gpus_per_node=gpus,
        wall_s=fields["planning_wall_s"],
        templates={one["num_nodes"]: _template(one, gpus) for one in fields["templates"]},
    )


@dataclass(frozen=True)
class Room:
    """Memory of stages that never recompute. micro_batches: [C, n, n] as many as there is room for.

    0 where layers may not stand.
    """

    micro_batches: Array

    def extra(self, place: int, held: int) -> Array:
        """See `StageMemory`."""
        return np.where(self.micro_batches[place] >= max(1, held), 0, NEVER)

    def recomputed(self, place: int, held: int, layers: tuple[int, int]) -> Recomputed:
        """See `StageMemory`."""
        return NOTHING


def places(case: PlannerCase, split: NodeSplit = NodeSplit.ALIGNED) -> Places:
    """Tables of a case: its `max_nodes` nodes; no transfers, no memory limit, times in ps."""
    most = case.gpus_per_node
    gpus = tuple(g for g in sorted(case.layers[0].all_reduce_ms) if g <= most)
    times = np.array([[layer.times_ps(g) for layer in case.layers] for g in gpus], dtype=np.int64)
    forward, backward = interval_sums(times[..., 0]), interval_sums(times[..., 1])
    none: Array = np.zeros((2, len(gpus), len(gpus), 1), dtype=np.int64)
    ends = np.arange(len(case.layers) + 1)
    return Places(
        split=split,
        nodes=(case.max_nodes,),
        node_gpus=(filled(most, gpus, split),),
        group=(0,) * len(gpus),
        gpus=gpus,
        forward=forward,
        backward=backward,
        sync=np.zeros_like(forward),
        finish=np.zeros_like(forward),
        memory=Room(np.where(ends > ends[:, None], ALWAYS_FIT, 0) + np.zeros_like(forward)),
        send=none,
        send_back=none,
        message_kind=np.zeros_like(ends),
        embedding=none[:, 0, :, 0],
    )
