"""Tiny instances whose stages have degrees of their own, and every plan of their configurations.

Layouts are dealt out GPU by GPU: nothing of the planner's but costs by place, and the words of the
specification.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product

from formulations.costs.stage_places import stage_tables
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance
from formulations.instance.search import ScheduleName
from formulations.plan import Configuration, Degrees
from formulations.space import configs
from tests import brute_force
from tests.brute_force import meshes_run
from tests.random_configs import scheduled, zoned
from tests.small_instances import random_instance


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


#: What nodes of the two groups may have, in GPUs.
SIZES = [(4, 2), (2, 4), (2, 2), (4, 1), (2, 1), (3, 2)]
SCHEDULES: tuple[ScheduleName, ...] = ("1f1b", "gpipe", "zb-h1", "interleaved")


def unlike_instance(seed: int) -> Instance:
    """Two types, up to three nodes of up to four GPUs, micro-batches of two and four sequences.

    All schedules, even and uneven shares, whole and split messages, zones and ZeRO in turn.
    """
    rng = random.Random(seed)
    one = next(
        found
        for found in map(random_instance, range(100 * seed, 100 * seed + 100))
        if len(found.cluster.groups) == 2
    )
    sizes = rng.choice(SIZES)
    groups = tuple(
        group.but(gpus_per_node=size, nodes=1 if size == 4 else group.nodes)
        for group, size in zip(one.cluster.groups, sizes, strict=True)
    )
    workload = one.workload.but(global_batch=8, sequence_length=192)
    schedule = SCHEDULES[seed % 4]
    one = scheduled(one, schedule, seed) if schedule == "interleaved" else one
    search = one.search.model_copy(
        update={
            "degrees": "per_group",
            "micro_batch": (2, 4),
            "micro_batches": "uneven" if seed % 8 == 1 else "even",
            "idle_nodes": False,
            "schedule": (schedule,),
            "zero": (0, 1, 2, 3) if rng.random() < 0.3 else (rng.randint(0, 1),),
            "recompute_per": rng.choice(["stage", "plan"]),
            **rng.choice([{}, {"scatter_gather": True}, {"sequence_parallel": True}]),
        }
    )
    made = one.but(cluster={"groups": groups}, workload=workload, search=search)
    return zoned(made, seed) if seed % 6 == 5 else made


def meshed_groups(seed: int) -> Instance:
    """The same for FlagScale, tied embeddings, sequence parallelism and ZeRO 1 by the seed."""
    search = {
        "target": "flagscale",
        "micro_batches": "even",
        "schedule": ("1f1b",),
        "recompute": ("none", "full"),
        "embedding_only_stages": False,
        "zero": (seed % 2,),
        "sequence_parallel": seed % 5 > 0,
    }
    return unlike_instance(seed).but(search=search, workload={"tied_embeddings": seed % 3 < 2})


def unlike_configs(instance: Instance, most_stages: int = 3) -> list[Configuration]:
    """Those whose groups differ in their degrees, small enough to be tried out."""
    return [
        config
        for config in configs(instance)
        if len(set(config.degrees_used)) > 1 and config.pp <= most_stages and config.dp <= 4
    ]


def unlike_tables(seed: int) -> CostTables | None:
    """Costs of one of them; None if there is none."""
    instance = unlike_instance(seed)
    found = unlike_configs(instance)
    return build_tables(instance, random.Random(seed).choice(found)) if found else None
