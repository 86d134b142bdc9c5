"""Tiny instances whose stages have degrees of their own, and every plan of their configurations.

Layouts are dealt out GPU by GPU and costs counted slot by slot, in exact fractions: nothing of the
planner's but layer tables, one set for each degrees, and the words of the specification.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance
from formulations.plan import Configuration, Degrees
from tests import brute_force
from tests.brute_force import Placed, meshes_run, up
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
        self.tables = self._tables()

    def _tables(self) -> CostTables:
        """Columns of the tables in which one group has these degrees."""
        each, numbers = [], range(len(self.groups))
        for j, own in self.columns:
            degrees = tuple(own if i == j else Degrees(tp=1) for i in numbers)
            each.append((build_tables(self.instance, self.config.but(degrees=degrees)), j))
        by_layer = ("forward_ns", "backward_ns", "weight_ns", "optimizer_ns")
        stacked = {
            name: np.stack([getattr(tables, name)[:, j] for tables, j in each], axis=1)
            for name in (*by_layer, "gradient_bytes", "gather_bytes")
        }
        by_place = {
            name: tuple(getattr(tables, name)[j] for tables, j in each)
            for name in ("memory", "send_bytes", "embedding_bytes")
        }
        first, capacities = each[0][0], [tables.capacity_bytes[j] for tables, j in each]
        recompute_ns = tuple(
            np.stack([tables.recompute_ns[way][:, j] for tables, j in each], axis=1)
            for way in range(len(first.recompute_ns))
        )
        fields: dict[str, Any] = stacked | by_place | {"recompute_ns": recompute_ns}
        return replace(first, **fields, capacity_bytes=np.array(capacities))

    def layouts(self) -> Iterator[tuple[tuple[int, ...], Layout]]:
        """Node orders, with every way to deal their GPUs to stages, one slot after the other."""
        nodes = [j for j, count in enumerate(self.config.nodes_used) for _ in range(count)]
        for order in sorted(set(permutations(nodes))):
            gpus = [i for i, j in enumerate(order) for _ in range(self.groups[j].gpus_per_node)]
            for chosen in product({own for _, own in self.columns}, repeat=self.config.pp):
                layout = self._dealt(order, gpus, chosen)
                launched = meshes_run(self.instance, self.config.zero, [chosen])
                if layout is not None and launched:
                    yield order, layout

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

    def placed(self, order: Sequence[int], layout: Layout) -> Placed:
        """What lies between and behind the stages."""
        factor = 1 if self.config.zero else 2
        hidden = Fraction(self.instance.search.overlap.gradient_sync)
        hidden = hidden if self.config.pp == 1 else Fraction(0)
        rings = [self._ring(order, own, (1 - hidden) * factor, "gradient_bytes") for own in layout]
        gathers = [
            self._ring(order, own, Fraction(self.config.zero), "gather_bytes") for own in layout
        ]
        tensors = {layer.output_tensors for layer in self.instance.workload.layers}
        slots = [slot for own in layout for slot in own]
        return Placed(
            groups=[slot.column for slot in slots],
            send=[
                {n: self._send(order, layout, k, r, n) for n in tensors}
                for k in range(self.config.pp - 1)
                for r in range(self.config.dp)
            ],
            sync=[layers for layers, _ in rings],
            sync_start=[start for _, start in rings],
            gather=[layers for layers, _ in gathers],
            gather_start=[start for _, start in gathers],
            embedding=self._embedding(order, layout),
        )

    def _link(self, j: int, inside: bool) -> tuple[Fraction, Fraction]:
        link = self.groups[j].intra_node if inside else self.groups[j].inter_node
        return Fraction(link.bandwidth_bytes_per_s), Fraction(link.latency_s)

    def _send(self, order: Sequence[int], layout: Layout, k: int, r: int, tensors: int) -> int:
        pairs = list(zip(layout[k], layout[k + 1], strict=True))
        widest = max(self.columns[slot.column][1].tp for slot in pairs[r])
        times = []
        for end in (0, 1):
            slot = pairs[r][end]
            (j, own), size = self.columns[slot.column], self.tables.send_bytes[slot.column]
            speed, latency = self._link(j, inside=True)
            inner = tensors * size / speed + latency
            if pairs[r][0].node == pairs[r][1].node:
                times.append(up(inner))
                continue
            parts = all(map(self.instance.splits_messages, (own.tp, widest)))
            lanes = own.parts * (own.tp if parts else widest)
            flows = sum(p[end].node == slot.node and p[0].node != p[1].node for p in pairs)
            speed, latency = self._link(j, inside=False)
            seconds = lanes * flows * tensors * size / speed + latency
            if self.instance.gathers_messages(own.tp):
                seconds += (own.tp - 1) * inner
            times.append(up(seconds))
        return max(times)

    def _ring(
        self, order: Sequence[int], own: list[Slot], factor: Fraction, name: str
    ) -> tuple[list[int], int]:
        j, degrees = self.columns[own[0].column]
        nodes = [slot.node for slot in own]
        n, count = nodes.count(nodes[0]) * degrees.parts, len(set(nodes))
        near, near_s = self._link(j, inside=True)
        far, far_s = self._link(j, inside=False)
        inside = Fraction(n - 1, n) / near
        share = Fraction(count - 1, count) / Fraction(self.instance.cluster.efficiency(count))
        sizes = getattr(self.tables, name)[:, own[0].column].tolist()
        layers = [
            up(factor * inside * size) + up(factor * share * degrees.tp / far * size)
            for size in sizes
        ]
        starts = [(n - 1) * near_s, (count - 1) * far_s]
        return layers, sum(up(factor * start) for start in starts)

    def _embedding(self, order: Sequence[int], layout: Layout) -> int:
        pairs, times = list(zip(layout[0], layout[-1], strict=True)), [Fraction(0)]
        if not any(self.tables.embedding_bytes):
            return 0
        for slot in (slot for pair in pairs for slot in pair):
            j, degrees = self.columns[slot.column]
            size = self.tables.embedding_bytes[slot.column]
            apart = [pair for pair in pairs if pair[0].node != pair[1].node]
            lanes = sum(degrees.width for pair in apart for one in pair if one.node == slot.node)
            speed, latency = self._link(j, inside=not apart)
            times.append((lanes if apart else 1) * size / speed + 2 * latency)
        return up(max(times))

    def optimum_ns(self) -> int | None:
        """Least step time of all layouts and splits; None if nothing fits."""
        tables, best = self.tables, None
        shares = (tables.num_micro_batches // self.config.dp,) * self.config.dp
        splits = list(brute_force.all_splits(tables))
        for order, layout in self.layouts():
            placed = self.placed(order, layout)
            for boundaries in splits:
                if brute_force.fits(tables, placed, boundaries, shares):
                    found = brute_force.step_time_ns(tables, placed, boundaries, shares)
                    best = found if best is None else min(best, found)
        return best
