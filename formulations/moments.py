"""What the devices of a shape hold at their fullest moments, as the models' memory rows want it."""

from collections.abc import Iterator, Sequence

from formulations.costs.memory import LayerMemory
from formulations.costs.tables import Array
from formulations.plan import Shape
from formulations.schedules import held

Moment = tuple[int, ...]  #: [v + 1] whole micro-batches per chunk, and those put off


def first_moments(shape: Shape, device: int, shares: Sequence[int]) -> Iterator[tuple[int, Moment]]:
    """The least share with which a device comes to each of its fullest moments.

    shares: ascending. With more micro-batches a device comes to all moments that it comes to with
    fewer, or to fuller ones.
    """
    known: set[Moment] = set()
    for m in shares:
        most = held(shape.schedule, shape.pp, device, m, shape.vpp)
        for whole, put_off in zip(most.whole.tolist(), most.put_off.tolist(), strict=True):
            moment = (*whole, put_off)
            if moment not in known:
                known.add(moment)
                yield m, moment


def chunk_bytes(memory: LayerMemory, moment: Moment, way: int) -> list[Array]:
    """Per chunk [L] bytes of every layer that may lie in it, static ones too.

    way: the one that is taken to recompute, of those that the shape allows.
    """
    waiting = memory.static_bytes + moment[-1] * memory.put_off_bytes
    return [waiting + whole * memory.kept[way].activation_bytes for whole in moment[:-1]]
