"""What a framework is told to run, whoever wrote it down, and where each choice stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.search import ScheduleName, ZeroStage
from formulations.instance.target import Target
from formulations.instance.workload import Recompute


@dataclass(frozen=True)
class Launched:
    """Degrees and strategies of a run; None: not said.

    places: of a field, the file and line, or the option, that says it; of any other, `source`.
    boundaries: pp vpp + 1 layer indices. first_blocks: of every stage, that are recomputed; None:
    all. etp: as in `Shape`. settings: fields of `search` that the files decide for all plans.
    by_replica: are the ranks of one replica neighbours, and not those of one stage? flash: what
    asks for flash attention, and where.
    """

    source: str
    target: Target
    tp: int
    pp: int
    boundaries: tuple[int, ...]
    micro_batch: int
    dp: int | None = None
    cp: int = 1
    ep: int = 1
    etp: Literal[1] | None = None
    vpp: int = 1
    schedule: ScheduleName = "1f1b"
    zero: ZeroStage = 0
    recompute: Recompute = "none"
    first_blocks: int | None = None
    by_replica: bool = False
    flash: tuple[str, str] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def error(self, name: str, found: str, allowed: str) -> PlanError:
        """A choice that cannot be."""
        return PlanError(self.places.get(name, self.source), found, allowed)


def num_blocks(instance: Instance) -> int:
    """Blocks of the chain."""
    return sum(layer.is_block for layer in instance.workload.layers)


def block_boundaries(instance: Instance, blocks: Sequence[int]) -> tuple[int, ...]:
    """Layer boundaries of stages with so many blocks each, as many in all as the chain has.

    What stands before the first block goes with it, what stands behind one with the next.
    """
    layers = instance.workload.layers
    behind = [0, *(i + 1 for i, layer in enumerate(layers) if layer.is_block)]
    total, cuts = 0, []
    for own in blocks[:-1]:
        total += own
        cuts.append(max(behind[total], 1 if not total else 0))
    return (0, *cuts, len(layers))
