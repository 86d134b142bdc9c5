"""A published training run as an instance and a plan of ours, or the reason why it has none.

Models are found in the catalogue by their name without case, punctuation and what stands in
parentheses: LLAMA3.1_405B is llama3-405b.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Decisions
from formulations.instance import GpuType, Instance
from formulations.instance.load import parse_instance
from formulations.instance.resolve_workload import workload_catalogue
from formulations.plan import Configuration, Degrees, Plan
from solver.simulate import step_time_ns

Row = Mapping[str, Any]
Sizes = dict[str, Any]

#: Families whose blocks are not only of attention and feed-forward networks.
STATE_SPACE = ("nemotronh", "nemotronv3", "nemotron3", "nemotronnano", "mamba", "jamba")


class NotExpressible(ValueError):
    """No plan of ours is the run: what it has that plans lack, or what is not published."""


@dataclass(frozen=True)
class Case:
    """One row: where it is from, what was measured, and the plan, or why there is none.

    measured_s: None where a row has a step that did not run. fitted: whether figures of the
    catalogue were fitted to the row. choice: rows with an equal one are choices of one problem.
    """

    source: str
    kind: str  #: of the evidence, such as "dense" or "one node"
    model: str
    label: str
    system: str
    precision: str
    measured_s: float | None
    other_s: float | None = None  #: the prediction published beside it
    measured_bytes: float | None = None  #: of the fullest GPU
    other_bytes: float | None = None
    counted: str = "allocated"  #: what the measured memory is: allocated, reserved, of the device
    fitted: bool = False
    choice: tuple[Any, ...] | None = None
    plan: tuple[Instance, Plan] | None = None
    why_not: str | None = None


@dataclass(frozen=True)
class Run:
    """What a row says of its run, in words of an instance and a configuration.

    groups: `cluster.groups` as written.
    launch_s: seconds of a launch on the row's hosts; None for the catalogue's.
    """

    workload: dict[str, Any]
    groups: Sequence[dict[str, Any]]
    search: dict[str, Any]
    dp: int
    micro_batch: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    chunks: int = 1
    zero: int = 1
    recompute: str = "none"
    boundaries: Sequence[int] | None = None
    launch_s: float | None = None
    cluster: dict[str, Any] = field(default_factory=dict)

    def instance(self) -> Instance:
        """Memory is not what is compared, so whatever does not fit is no error."""
        written = {
            "name": "published",
            "workload": self.workload,
            "cluster": {"groups": list(self.groups), "joined_nodes": self._joined} | self.cluster,
            "search": self.search,
        }
        return parse_instance(yaml.safe_dump(written, sort_keys=False), "row", Path())

    @property
    def _joined(self) -> int:
        """Nodes that a tensor group, or the GPUs of a sequence, span; 1 where that is no number."""
        over, rest = divmod(self.tp * self.cp, min(group["gpus_per_node"] for group in self.groups))
        divides = not any(group["nodes"] % max(1, over) for group in self.groups)
        return over if over and not rest and divides else 1

    def _check(self, instance: Instance) -> None:
        """What plans of ours lack. Raises NotExpressible."""
        width, batch = self.tp * self.cp, instance.workload.global_batch
        slots = [group.gpus_per_node // width for group in instance.cluster.groups]
        if not all(slots):
            raise NotExpressible(f"tensor groups and sequences over several nodes ({width} GPUs)")
        if any(group.gpus_per_node % width for group in instance.cluster.groups):
            raise NotExpressible(f"{width} GPUs of a group do not fill nodes")
        gpus = instance.cluster.num_gpus
        if self.dp * self.pp * width != gpus or not self.dp:
            raise NotExpressible(f"degrees that do not make {gpus} GPUs")
        if not self.micro_batch or batch % (self.dp * self.micro_batch):
            raise NotExpressible("a batch that replicas and micro-batches do not divide")

    def planned(self) -> tuple[Instance, Plan]:
        """The instance, and the plan cut as stated, or as Megatron-LM cuts. NotExpressible."""
        instance = self.instance()
        self._check(instance)
        if self.launch_s is not None:
            launch = {"launch_overhead_s": self.launch_s}
            instance = with_gpus(instance, lambda gpu: gpu.model_copy(update=launch))
        experts = instance.workload.experts
        config = Configuration.model_validate(
            {
                "degrees": (Degrees(tp=self.tp, cp=self.cp),) * len(instance.cluster.groups),
                "dp": self.dp,
                "pp": self.pp,
                "ep": self.ep,
                "etp": 1 if self.tp > 1 and experts else None,
                "micro_batch": self.micro_batch,
                "schedule": "interleaved" if self.chunks > 1 and self.pp > 1 else "1f1b",
                "recompute": (self.recompute,),
                "zero": self.zero,
                "nodes_used": tuple(group.nodes for group in instance.cluster.groups),
                "vpp": self.chunks if self.pp > 1 else 1,
            }
        )
        if config.num_stages > len(instance.workload.layers) - 2:
            raise NotExpressible("more stages than blocks")
        if self.boundaries and any(end <= start for start, end in pairwise(self.boundaries)):
            raise NotExpressible("a stage without a layer")
        tables = build_tables(instance, config)
        boundaries = tuple(self.boundaries or even_boundaries(tables))
        share = instance.workload.global_batch // (self.dp * self.micro_batch)
        order, shares = instance.cluster.node_groups, (share,) * self.dp
        return instance, Decisions(order, boundaries, shares).plan(tables)


def with_gpus(instance: Instance, change: Callable[[GpuType], GpuType]) -> Instance:
    """The instance with every GPU type changed."""
    groups = instance.cluster.groups
    changed = [group.model_copy(update={"gpu": change(group.gpu)}) for group in groups]
    return instance.model_copy(update={"cluster": instance.cluster.with_groups(changed)})


def plain(name: str) -> str:
    """A model's name without case, punctuation and remarks."""
    bare = re.sub(r"\(.*?\)", "", name).lower()
    return re.sub(r"llama3[1-3](?=\d)", "llama3", re.sub(r"[^a-z0-9]", "", bare))


def catalogue_name(name: str) -> str:
    """The model's name in the catalogue. NotExpressible where it has none."""
    known, wanted = {plain(entry): entry for entry in workload_catalogue()}, plain(name)
    if wanted.startswith(STATE_SPACE):
        raise NotExpressible("state-space layers (Mamba)")
    longer = [entry for entry in known if entry.startswith(wanted)]
    shorter = [entry for entry in known if wanted.startswith(entry)]
    if wanted in known or len(longer) == 1:
        return known[wanted if wanted in known else longer[0]]
    if not shorter:
        raise NotExpressible(f"{name}: not a model of the catalogue")
    return known[max(shorter, key=len)]


def sizes_of(name: str, **changed: Any) -> Sizes:
    """`workload.sizes` of a model of the catalogue, with other sizes."""
    written = workload_catalogue()[name].sizes.model_dump(exclude_unset=True)
    return written | {key: value for key, value in changed.items() if value is not None}


def even_plan(instance: Instance, config: Configuration) -> Plan:
    """Megatron-LM's plan of a config on equal nodes: as many blocks, or as much work, on each."""
    tables = build_tables(instance, config)
    share = instance.workload.global_batch // (config.dp * config.micro_batch)
    order, shares = (0,) * sum(config.nodes_used), (share,) * config.dp
    return Decisions(order, even_boundaries(tables), shares).plan(tables)


def even_boundaries(tables: CostTables) -> tuple[int, ...]:
    """As many blocks on every virtual stage, or where they do not divide as much work."""
    stages, blocks = tables.config.num_stages, int(tables.is_block.sum())
    cuts = [1 + blocks * s // stages for s in range(1, stages)]
    if blocks % stages:
        cuts = _balanced(tables, stages)
    return (0, *cuts, len(tables.is_block))


def _balanced(tables: CostTables, stages: int) -> list[int]:
    """Cuts nearest to equal shares of the time, with a block between them."""
    work = np.cumsum((tables.forward_ns + tables.backward_ns)[:, 0])
    goals = work[-1] * np.arange(1, stages) / stages
    cuts = 1 + np.argmin(np.abs(work[:, None] - goals), axis=0)
    last, first = len(work) - 1, 2
    for s in range(stages - 1):
        cuts[s] = np.clip(cuts[s], first, last - (stages - 1 - s))
        first = cuts[s] + 1
    return [int(cut) for cut in cuts]


def step_s(plan: tuple[Instance, Plan]) -> float:
    """Seconds of a step, by our model."""
    return step_time_ns(plan_costs(*plan)) / 1e9
