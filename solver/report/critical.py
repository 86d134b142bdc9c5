"""What limits a step: where the time of its critical path goes, and what would shorten it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from formulations.costs.plan_costs import PlanCosts
from solver.document import PlanDocument
from solver.report.quantities import percent, ranges
from solver.simulate import Array, Operation, Step, step_time_ns

TAIL = ("sync", "embedding", "optimizer", "gather")  # what follows the last backward
SPEED_UP_PERCENT = 10
_LEAST_GAIN = 0.001


@dataclass(frozen=True)
class Share:
    """Time on the critical path: compute and sync by pipeline stage, all else together.

    A stage is one of the pp, with all its chunks.
    """

    kind: str  #: compute, transfers, or the kind of a tail operation
    stage: int | None
    time_ns: int


def shares(path: Sequence[Operation]) -> list[Share]:
    """Shares of a critical path, largest first; together they are the step time.

    Gaps between its operations are transfers between stages.
    """
    times: Counter[tuple[str, int | None]] = Counter()
    for operation in path:
        kind = operation.kind if operation.kind in TAIL else "compute"
        stage = operation.stage if kind in ("compute", "sync") else None
        times[kind, stage] += operation.end_ns - operation.start_ns
    for before, after in pairwise(path):
        times["transfers", None] += after.start_ns - before.end_ns
    return [Share(*key, time_ns) for key, time_ns in times.most_common() if time_ns]


def by_type(
    path: Sequence[Operation], document: PlanDocument, blocking_sends: bool
) -> list[tuple[str, int]]:
    """What a critical path is made of, in words, and its ns, most first.

    Stages on GPUs of one type stand together; the one with most of their time is named.
    """
    groups: dict[tuple[str, str], list[Share]] = defaultdict(list)
    for share in shares(path):
        on = "" if share.stage is None else _types(document, share.stage)
        groups[share.kind, on if share.kind == "compute" else ""].append(share)
    times_ns = [
        (_described(*key, of_kind, blocking_sends), sum(share.time_ns for share in of_kind))
        for key, of_kind in groups.items()
    ]
    return sorted(times_ns, key=lambda item: -item[1])


def _types(document: PlanDocument, stage: int) -> str:
    return ", ".join(sorted({replica.stages[stage].gpu_type for replica in document.replicas}))


def _described(kind: str, types: str, of_kind: Sequence[Share], blocking_sends: bool) -> str:
    """Name of shares of one kind, largest first."""
    sends = " and sends" if blocking_sends else ""
    names = {
        "compute": f"compute{sends} on {types}",
        "sync": "gradient sync",
        "transfers": "transfers between stages",
        "embedding": "sync of tied embeddings",
        "optimizer": "optimizer",
        "gather": "parameter gather (ZeRO)",
    }
    stages = [share.stage for share in of_kind if share.stage is not None]
    if not stages:
        return names[kind]
    plural = "s" if len(stages) > 1 else ""
    largest = of_kind[0].time_ns / sum(share.time_ns for share in of_kind)
    mostly = f", most of it stage {stages[0]}" if plural and largest > 0.5 else ""
    return f"{names[kind]} (stage{plural} {ranges(stages)}{mostly})"


def _less(time_ns: Array) -> Array:
    return time_ns * (100 - SPEED_UP_PERCENT) // 100


def _what_ifs(document: PlanDocument, costs: PlanCosts) -> Iterator[tuple[str, PlanCosts]]:
    """Costs of the same plan with one kind of work taking 10 % less time everywhere."""
    types = np.array(
        [[stage.gpu_type for stage in replica.stages] for replica in document.replicas]
    ).T
    for name in sorted(set(types.flat)):
        on_type = types == name
        yield (
            f"compute on {name}",
            replace(
                costs,
                forward_ns=np.where(on_type, _less(costs.forward_ns), costs.forward_ns),
                backward_ns=np.where(on_type, _less(costs.backward_ns), costs.backward_ns),
                weight_ns=np.where(on_type, _less(costs.weight_ns), costs.weight_ns),
            ),
        )
    yield "transfers between stages", replace(costs, send_ns=_less(costs.send_ns))
    yield (
        "gradient sync",
        replace(
            costs,
            sync_ns=_less(costs.sync_ns),
            gather_ns=_less(costs.gather_ns),
            embedding_ns=costs.embedding_ns * (100 - SPEED_UP_PERCENT) // 100,
        ),
    )
    yield "the optimizer", replace(costs, optimizer_ns=_less(costs.optimizer_ns))


def improvements(document: PlanDocument, costs: PlanCosts, step: Step) -> list[tuple[str, float]]:
    """What saves which share of the step if it took 10 % less time; most first.

    Each is found by simulating the same plan again, so that it says what is gained in truth, not
    only on today's critical path.
    """
    saved = [
        (name, 1 - step_time_ns(faster) / step.step_time_ns)
        for name, faster in _what_ifs(document, costs)
    ]
    return sorted((item for item in saved if item[1] > 0), key=lambda item: -item[1])


def busy_share(document: PlanDocument) -> float | None:
    """Part of the step that the plan's GPUs compute, on average; None without a plan."""
    if document.step_time_s is None or document.shape is None:
        return None
    busy = [
        replica.micro_batches * (stage.forward_s + stage.backward_s)
        for replica in document.replicas
        for stage in replica.stages
    ]
    return sum(busy) / document.shape.slots / document.step_time_s


def summary(document: PlanDocument, costs: PlanCosts, step: Step) -> list[tuple[str, str]]:
    """Lines (label, text) on what limits the step and what would make it faster."""
    total = step.step_time_ns
    times_ns = by_type(step.critical_path, document, costs.blocking_sends)
    lines = [
        ("limited by", ", ".join(f"{percent(time / total)} {text}" for text, time in times_ns))
    ]
    gains = [
        (name, saved) for name, saved in improvements(document, costs, step) if saved >= _LEAST_GAIN
    ]
    texts = [f"for {name} {percent(saved)}" for name, saved in gains]
    if texts:
        texts[0] = f"for {gains[0][0]} saves {percent(gains[0][1])} of the step"
        lines.append(("faster with", f"{SPEED_UP_PERCENT} % less time {', '.join(texts)}"))
    return lines
