"""The shapes that one model holds, with the paths that it knows of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Given, even_shares, share_range
from formulations.models.degrees import ManyShapes
from formulations.models.step_time import OneShape
from formulations.paths import PathCut
from solver.search.engines import ModelEngine
from solver.search.paths import CutPool, first_cuts

#: Weight of the dearest nodes, if what models minimise, a sum over shapes, stays below the other.
LARGEST_WEIGHT = 10_000
LARGEST_SUM = 1 << 62


@dataclass(frozen=True)
class OpenShape:
    """A shape with a proved bound of its step times; `price`: what a nanosecond of them costs."""

    tables: CostTables
    price: float = 1.0
    bound_ns: int = 0
    given: Given = ALL_FREE


def largest_share(tables: CostTables, step_time_limit_ns: int) -> int:
    """No replica of a plan within this step time has more micro-batches.

    Proof: the stages of a replica work at least the sum over layers of the fastest group's
    forward + backward time on each micro-batch; the slowest of its p stages works at least 1/p of
    that, on each of its m micro-batches, one after the other.
    """
    return max(0, step_time_limit_ns) * tables.shape.pp // max(tables.least_work_ns, 1)


def shares_of(tables: CostTables, given: Given) -> Sequence[int]:
    """Micro-batches that a replica may have, ascending."""
    if given.micro_batches is not None:
        return sorted(set(given.micro_batches))
    if tables.instance.search.micro_batches == "even":
        return even_shares(tables)[:1]
    return share_range(tables, given.largest_share)


def whole_weights(shapes: Sequence[OpenShape]) -> list[int]:
    """Whole numbers near the ratios of prices: what guides an engine, and proves nothing."""
    prices = [shape.price for shape in shapes]
    most = max(prices, default=0.0)
    if min(prices, default=0.0) == most:
        return [1] * len(prices)
    longest_ns = sum(2 * (shape.tables.longest_ns + 1) for shape in shapes)
    largest = min(LARGEST_WEIGHT, LARGEST_SUM // longest_ns)
    return [(price and max(1, round(price / most * largest))) or 0 for price in prices]


class HeldShapes:
    """held: indices of shapes, in the order of the model. shares: what replicas of each may have.

    weights: of every shape, held or not. built: the model.
    """

    def __init__(self, engine: ModelEngine, shapes: Sequence[OpenShape], pool: CutPool) -> None:
        self.built, self.shapes, self._pool = ManyShapes(engine.model()), shapes, pool
        self.weights = whole_weights(shapes)
        self.held: list[int] = []
        self.shares: dict[int, Sequence[int]] = {}

    def part(self, index: int) -> OneShape:
        """The part of a shape that is held."""
        return self.built.parts[self.held.index(index)]

    def hold(self, index: int, bound_ns: int, target_ns: int) -> None:
        """Adds a shape; step times are at least the bound, and below the target."""
        tables = self.shapes[index].tables
        limit_ns = min(target_ns, 2 * tables.longest_ns + 2) - 1
        most = largest_share(tables, limit_ns)
        given = replace(self.shapes[index].given, largest_share=most, max_step_time_ns=limit_ns)
        part = self.built.add_shape(tables, self.weights[index], given)
        part.raise_step_time(bound_ns)
        self.held.append(index)
        self.shares[index] = shares_of(tables, given)
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
