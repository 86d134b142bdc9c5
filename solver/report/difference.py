"""Two plans side by side, by cost term."""

from collections.abc import Callable, Iterator

from rich.console import RenderableType

from solver.document import PlanDocument
from solver.report.layout import labelled, table
from solver.report.quantities import Unit, money, percent, significant, size_unit, time_unit
from solver.report.text import batches_text, shape_text

_TERMS = {
    "compute_s": "compute",
    "transfers_s": "transfers between stages",
    "gradient_sync_s": "gradient sync",
    "embedding_sync_s": "sync of tied embeddings",
    "optimizer_s": "optimizer",
}
Row = tuple[str, str, str, str]


def difference(
    first: PlanDocument, second: PlanDocument, names: tuple[str, str]
) -> list[RenderableType]:
    """Both plans in words, then every figure of both and by how much the second is larger."""
    lines = []
    for name, one in zip(names, (first, second), strict=True):
        if one.shape is not None:
            lines += [(name, shape_text(one, one.shape)), ("", batches_text(one, one.shape))]
    rows = [*_times(first, second), *_others(first, second)]
    return [labelled(lines), "", table(("",), (*names, "difference"), rows)]


def _row(
    name: str, a: float | None, b: float | None, text: Callable[[float], str]
) -> Iterator[Row]:
    """A line where both have the figure."""
    if a is not None and b is not None:
        change = b - a
        sign = "+" if change > 0 else ""
        share = f" ({sign}{percent(change / a)})" if a else ""
        yield name, text(a), text(b), f"{sign}{text(change)}{share}" if change else "none"


def _measured(
    name: str, a: float | None, b: float | None, unit: Callable[[float], Unit]
) -> Iterator[Row]:
    """The same, all in the unit of the larger one."""
    yield from _row(name, a, b, unit(max(a or 0.0, b or 0.0)).text)


def _points(name: str, a: float | None, b: float | None) -> Iterator[Row]:
    """A line of two shares, and the percentage points between them."""
    if a is not None and b is not None:
        points = 100 * (b - a)
        yield name, percent(a), percent(b), f"{points:+.1f} points" if points else "none"


def _times(first: PlanDocument, second: PlanDocument) -> Iterator[Row]:
    yield from _measured("step time", first.step_time_s, second.step_time_s, time_unit)
    for field, name in _TERMS.items():
        a, b = (getattr(one.critical_path, field, None) for one in (first, second))
        if a or b:
            yield from _measured(f"  {name}", a, b, time_unit)


def _others(first: PlanDocument, second: PlanDocument) -> Iterator[Row]:
    yield from _measured("lower bound", first.lower_bound_s, second.lower_bound_s, time_unit)
    a, b = first.throughput_sequences_per_s, second.throughput_sequences_per_s
    yield from _row("throughput", a, b, lambda rate: f"{significant(rate)} sequences/s")
    yield from _points("MFU", first.mfu, second.mfu)
    yield from _measured("fullest GPU", _fullest(first), _fullest(second), size_unit)
    a, b = first.cost_usd_per_step, second.cost_usd_per_step
    if a or b:
        yield from _row("money per step", a, b, money)
    if first.renting and second.renting:
        a, b = (one.cost_usd_per_useful_sequence for one in (first.renting, second.renting))
        yield from _row("money per useful sequence", a, b, money)


def _fullest(document: PlanDocument) -> float | None:
    """Bytes on the GPU that holds most."""
    held = (stage.memory_bytes for replica in document.replicas for stage in replica.stages)
    return max(held, default=None)
