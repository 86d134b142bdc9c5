"""The shapes that one model holds, with the paths that it knows of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from formulations.costs.tables import CostTables
from formulations.decisions import even_shares, share_range
from formulations.paths import PathCut
from solver.search.engines import ModelEngine, OneShape
from solver.search.paths import CutPool, first_cuts

#: Weight of the dearest nodes.
LARGEST_WEIGHT = 10_000


@dataclass(frozen=True)
class Fixed:
    """The parts of the decisions that are given; None is decided."""

    order: tuple[int, ...] | None = None
    boundaries: tuple[int, ...] | None = None
    micro_batches: tuple[int, ...] | None = None


ALL_FREE = Fixed()


@dataclass(frozen=True)
class OpenShape:
    """A shape with a proved bound of its step times; `price`: what a nanosecond of them costs."""

    tables: CostTables
    price: float = 1.0
    bound_ns: int = 0
    fixed: Fixed = ALL_FREE


def largest_share(tables: CostTables, step_time_limit_ns: int) -> int:
    """No replica of a plan within this step time has more micro-batches.

    Proof: the stages of a replica work at least the sum over layers of the fastest group's
    forward + backward time on each micro-batch; the slowest of its p stages works at least 1/p of
    that, on each of its m micro-batches, one after the other.
    """
    return max(0, step_time_limit_ns) * tables.shape.pp // max(tables.least_work_ns, 1)


def shares_of(tables: CostTables, fixed: Fixed, largest: int | None) -> Sequence[int]:
    """Micro-batches that a replica may have if none has more than `largest`, ascending."""
    if fixed.micro_batches is not None:
        return sorted(set(fixed.micro_batches))
    if tables.instance.search.micro_batches == "even":
        return even_shares(tables)[:1]
    return share_range(tables, largest)


def whole_weights(prices: Sequence[float]) -> list[int]:
    """Whole numbers near the ratios of prices: what guides an engine, and proves nothing."""
    most = max(prices, default=0.0)
    if min(prices, default=0.0) == most:
        return [1] * len(prices)
    return [(price and max(1, round(price / most * LARGEST_WEIGHT))) or 0 for price in prices]


class HeldShapes:
    """held: indices of shapes, in the order of the model. shares: what replicas of each may have.

    weights: of every shape, held or not. built: the native model.
    """

    def __init__(self, engine: ModelEngine, shapes: Sequence[OpenShape], pool: CutPool) -> None:
        self.built, self.shapes, self._pool = engine.build(), shapes, pool
        self.weights = whole_weights([shape.price for shape in shapes])
        self.held: list[int] = []
        self.shares: dict[int, Sequence[int]] = {}

    def part(self, index: int) -> OneShape:
        """The part of a shape that is held."""
        return self.built.parts[self.held.index(index)]

    def hold(self, index: int, bound_ns: int, target_ns: int) -> None:
        """Adds a shape; step times are at least the bound, and below the target."""
        fixed, tables = self.shapes[index].fixed, self.shapes[index].tables
        limit_ns = min(target_ns, 2 * tables.longest_ns + 2) - 1
        most = largest_share(tables, limit_ns)
        part = self.built.add_shape(
            tables,
            self.weights[index],
            fixed.order,
            fixed.boundaries,
            fixed.micro_batches,
            most,
            limit_ns,
        )
        part.raise_step_time(bound_ns)
        self.held.append(index)
        self.shares[index] = shares_of(tables, fixed, most)
        shape, known = tables.shape, set(self._pool.of(tables.shape))
        for m in self.shares[index]:
            known.update(first_cuts(shape.schedule, shape.pp, m, shape.vpp))
        for cut in sorted(known):
            part.add_cut(cut)

    def add_cuts(self, index: int, cuts: Sequence[PathCut]) -> bool:
        """Whether any is new for this shape; others that they hold for learn them too."""
        pool = self._pool.of(self.shapes[index].tables.shape)
        for other in self.held:
            if other != index and self._pool.of(self.shapes[other].tables.shape) is pool:
                for cut in cuts:
                    if cut.micro_batches in self.shares[other]:
                        self.part(other).add_cut(cut)
        return sum(self.part(index).add_cut(cut) for cut in cuts) > 0
