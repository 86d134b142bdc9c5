"""Who holds which part of which tensors under a plan, worked out rank by rank.

A part has three shares: of the experts, of the dimension that tensor parallelism cuts, of another
one that ZeRO cuts among the ranks with the same tensors.
"""

from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from formulations.instance import Cluster, Workload
from formulations.plan import Plan, Stage
from formulations.switching.shards import Part as Share

Kind = Literal["parameters", "gradients"]
Part = tuple[Share, Share, Share]
Holding = dict[Part, int]  #: GPUs that hold a part, a bit for each, in the order of ranks

WHOLE: Share = (0, 1, 1)


@dataclass(frozen=True)
class Sort:
    """Like tensors of a layer: their name, elements, and the layers whose GPUs hold them."""

    what: str
    layer: int
    elements: int
    homes: tuple[int, ...]


def sorts_of(workload: Workload, layer: int, kind: Kind) -> Iterator[Sort]:
    """What a layer has; a tied matrix is its embedding's, and so are all its gradients."""
    own = workload.layers[layer]
    counts = {
        "matrices": own.sharded_parameters - own.expert_parameters,
        "whole": own.replicated_parameters,
        "experts": own.expert_parameters,
    }
    yield from (Sort(what, layer, count, (layer,)) for what, count in counts.items() if count)
    if own.vocabulary_rows and not own.tied_copy:
        copies = [n for n, other in enumerate(workload.layers) if other.tied_copy]
        homes = (layer, *copies) if layer == 0 and kind == "parameters" else (layer,)
        yield Sort("vocabulary", layer, own.vocabulary_rows * own.vocabulary_columns, homes)


class Holdings:
    """What the GPUs of a cluster hold under a plan; layers of the same stages are worked out once.

    A plan that `check_plan` accepts.
    """

    def __init__(self, cluster: Cluster, workload: Workload, plan: Plan) -> None:
        self._workload, self._plan = workload, plan
        sizes = (cluster.groups[j].gpus_per_node for j in cluster.node_groups)
        self._first = list(accumulate(sizes, initial=0))
        self.edges = sorted(
            {edge for r in plan.replicas for one in r.stages for edge in one.layers}
        )
        self._known: dict[object, Holding] = {}

    def of(self, sort: Sort, kind: Kind) -> Holding:
        rows = self._workload.layers[sort.layer].vocabulary_rows
        places = tuple(bisect(self.edges, home) for home in sort.homes)
        key = kind, sort.what, rows if sort.what == "vocabulary" else 0, places
        if key not in self._known:
            found = self._known[key] = {}
            for home in sort.homes:
                for part, bit in self._held(home, sort.what, rows, kind):
                    if all(first < end for first, end, _ in part):
                        found[part] = found.get(part, 0) | bit
        return self._known[key]

    def _held(self, home: int, what: str, rows: int, kind: Kind) -> Iterator[tuple[Part, int]]:
        config = self._plan.config
        shares = config.ep if what == "experts" else 1
        splits = config.zero >= (3 if kind == "parameters" else 1)
        lone = what == "experts" and config.etp is not None  # each GPU has whole experts
        copies = [
            (stage, n, tp)
            for stage in self._stages(home)
            for tp in [1 if lone else stage.degrees.tp]
            for n in range(stage.degrees.width // tp)
        ]
        for rank, (stage, n, tp) in enumerate(copies):
            own = range(rank % shares, len(copies), shares)
            split = _piece(own.index(rank), len(own)) if splits else WHOLE
            for t in range(tp):
                cut = WHOLE if what == "whole" else _piece(t, tp)
                if what == "vocabulary":
                    cut = _rows(rows, t, tp)
                gpu = self._first[stage.group.node] + stage.group.gpus[n * tp + t]
                yield (_piece(rank % shares, shares), cut, split), 1 << gpu

    def _stages(self, layer: int) -> list[Stage]:
        return [
            stage
            for replica in self._plan.replicas
            for stage in replica.stages
            if stage.layers[0] <= layer < stage.layers[1]
        ]


def _piece(index: int, count: int) -> Share:
    return index, index + 1, count


def _rows(rows: int, t: int, tp: int) -> Share:
    """Megatron-LM pads the rows to a multiple of 128 tp; padding is no part of the matrix."""
    each = -(-rows // (128 * tp)) * 128
    return min(t * each, rows), min((t + 1) * each, rows), rows
