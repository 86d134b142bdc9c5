"""Tiny instances whose stages have degrees of their own, and every plan of their configurations.

Layouts are dealt out GPU by GPU: nothing of the planner's but costs by place, and the words of the
specification.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product

from formulations.costs.stage_places import stage_tables
from formulations.instance import Instance
from formulations.plan import Configuration, Degrees
from tests import brute_force
from tests.brute_force import meshes_run
from tests.unlike_degrees import unlike_instance


def stage_instance(seed: int) -> Instance:
    """Without zones, in 1F1B or GPipe, with few sizes of micro-batches."""
    one = unlike_instance(6 * seed)
    chosen = {
        "degrees": "per_stage",
        "schedule": (("1f1b", "gpipe")[seed % 2],),
        "micro_batches": "even",
        "zero": (seed // 2 % 2,),
        "micro_batch": (2 + 2 * (seed // 4 % 2),),
        "idle_nodes": seed % 5 == 4,
    }
    return one.but(search=chosen)


def meshed_instance(seed: int) -> Instance:
    """For FlagScale."""
    one = stage_instance(2 * seed)
    chosen = {
        "target": "flagscale",
        "recompute": ("none", "full"),
        "embedding_only_stages": False,
        "sequence_parallel": seed % 3 > 0,
        "zero": (seed % 2,),
        "micro_batch": (4,),
    }
    return one.but(search=chosen)


@dataclass(frozen=True)
class Slot:
    """Of a stage: its node's place in the order, and column of the tables."""

    node: int
    column: int


Layout = list[list[Slot]]  #: per stage and replica


class Bench:
    """All layouts of one configuration."""

    def __init__(self, instance: Instance, config: Configuration) -> None:
        self.instance, self.config = instance, config
        self.groups = instance.cluster.groups
        self.columns = [
            (j, Degrees(tp=tp, parts=parts))
            for j, group in enumerate(self.groups)
            if config.nodes_used[j]
            for tp, parts in product(range(1, group.gpus_per_node + 1), repeat=2)
            if group.gpus_per_node % (tp * parts) == 0
            and tp in (instance.search.tensor_parallel or (1, 2, 4))
            and instance.workload.kv_heads % tp == 0
            and config.micro_batch % parts == 0
        ]
        self.tables = stage_tables(instance, config, tuple(self.columns))

    def layouts(self) -> Iterator[Layout]:
        """Node orders, with every way to deal their GPUs to stages, one slot after the other."""
        nodes = [j for j, count in enumerate(self.config.nodes_used) for _ in range(count)]
        for order in sorted(set(permutations(nodes))):
            gpus = [i for i, j in enumerate(order) for _ in range(self.groups[j].gpus_per_node)]
            for chosen in product({own for _, own in self.columns}, repeat=self.config.pp):
                layout = self._dealt(order, gpus, chosen)
                launched = meshes_run(self.instance, self.config.zero, [chosen])
                if layout is not None and launched:
                    yield layout

    def _dealt(
        self, order: Sequence[int], gpus: list[int], chosen: Sequence[Degrees]
    ) -> Layout | None:
        left, layout = list(gpus), []
        for own in chosen:
            stage = []
            for _ in range(self.config.dp):
                slot, left = left[: own.width], left[own.width :]
                if len(slot) < own.width or len(set(slot)) > 1:
                    return None
                if (order[slot[0]], own) not in self.columns:
                    return None
                stage.append(Slot(slot[0], self.columns.index((order[slot[0]], own))))
            whole = {slot.node for slot in stage}
            cut = len(whole) * self.groups[order[stage[0].node]].gpus_per_node
            alone = len(whole) == 1 or cut == own.width * self.config.dp
            if not alone or len({slot.column for slot in stage}) > 1:
                return None
            layout.append(stage)
        return None if left else layout

    def optimum_ns(self) -> int | None:
        """Least step time of all layouts and splits; None if nothing fits."""
        tables, best = self.tables, None
        shares = (tables.num_micro_batches // self.config.dp,) * self.config.dp
        splits = list(brute_force.all_splits(tables))
        for layout in self.layouts():
            # A stage is a column, and whether it begins on the node of the one before
            nodes = [-1, *(stage[0].node for stage in layout)]
            together = [a == b for a, b in pairwise(nodes)]
            pairs = zip(layout, together, strict=True)
            placed = brute_force.place(tables, [2 * own[0].column + near for own, near in pairs])
            for boundaries in splits:
                if brute_force.fits(tables, placed, boundaries, shares):
                    found = brute_force.step_time_ns(tables, placed, boundaries, shares)
                    best = found if best is None else min(best, found)
        return best
