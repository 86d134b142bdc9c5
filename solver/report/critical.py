"""What limits a step: where the time of its critical path goes, and what would shorten it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from formulations.costs.plan_costs import PlanCosts
from solver.document import PlanDocument
from solver.report.layout import Lines
from solver.report.quantities import percent, ranges
from solver.simulate import Array, Operation, Step, step_time_ns

SPEED_UP_PERCENT = 10
_LEAST_GAIN = 0.001
#: What follows the last backward, and what else a step may wait for.
TAIL = {
    "sync": "gradient sync",
    "embedding": "sync of tied embeddings",
    "optimizer": "optimizer",
    "gather": "parameter gather (ZeRO)",
}
_TRANSFERS = "transfers between stages"


@dataclass(frozen=True)
class Share:
    """Time on the critical path: compute and sync by stage of the pp, all else together."""

    kind: str  #: compute, transfers, or the kind of a tail operation
    stage: int | None
    time_ns: int


def shares(path: Sequence[Operation]) -> list[Share]:
    """Shares of a critical path, largest first; gaps between its operations are transfers."""
    times: Counter[tuple[str, int | None]] = Counter()
    for operation in path:
        kind = operation.kind if operation.kind in TAIL else "compute"
        stage = operation.stage if kind in ("compute", "sync") else None
        times[kind, stage] += operation.end_ns - operation.start_ns
    for before, after in pairwise(path):
        times["transfers", None] += after.start_ns - before.end_ns
    return [Share(*key, time_ns) for key, time_ns in times.most_common() if time_ns]


def by_type(document: PlanDocument, step: Step) -> list[tuple[str, int]]:
    """What the critical path is made of, in words, and its ns, most first.

    Stages on GPUs of one type stand together; the one with most of their time is named.
    """
    sends = " and sends" if step.costs.blocking_sends else ""
    groups: dict[str, list[Share]] = defaultdict(list)
    for share in shares(step.critical_path):
        name = TAIL.get(share.kind, _TRANSFERS)
        if share.kind == "compute":
            k = share.stage or 0
            types = sorted({replica.stages[k].gpu_type for replica in document.replicas})
            name = f"compute{sends} on {', '.join(types)}"
        groups[name].append(share)
    times_ns = []
    for name, of_kind in groups.items():
        total_ns = sum(share.time_ns for share in of_kind)
        stages = [share.stage for share in of_kind if share.stage is not None]
        if stages:
            plural = "s" if len(stages) > 1 else ""
            mostly = f", most of it stage {stages[0]}"
            if not plural or 2 * of_kind[0].time_ns <= total_ns:
                mostly = ""
            name += f" (stage{plural} {ranges(stages)}{mostly})"
        times_ns.append((name, total_ns))
    return sorted(times_ns, key=lambda item: -item[1])


def improvements(document: PlanDocument, step: Step) -> list[tuple[str, float]]:
    """What saves which share of the step if it took 10 % less time everywhere; most first.

    Each is found by simulating the same plan again, so that it says what is gained in truth, not
    only on today's critical path.
    """
    costs, faster = step.costs, dict[str, PlanCosts]()

    def less(time_ns: Array) -> Array:
        return time_ns * (100 - SPEED_UP_PERCENT) // 100

    types = np.array(
        [[stage.gpu_type for stage in replica.stages] for replica in document.replicas]
    ).T  # (S, dp) as the costs of passes
    for name in sorted(set(types.flat)):
        forward_ns, backward_ns, weight_ns = (
            np.where(types == name, less(time_ns), time_ns)
            for time_ns in (costs.forward_ns, costs.backward_ns, costs.weight_ns)
        )
        passes = replace(costs, forward_ns=forward_ns, backward_ns=backward_ns, weight_ns=weight_ns)
        faster[f"compute on {name}"] = passes
    faster[_TRANSFERS] = replace(costs, send_ns=less(costs.send_ns))
    faster["gradient sync"] = replace(
        costs,
        sync_ns=less(costs.sync_ns),
        gather_ns=less(costs.gather_ns),
        embedding_ns=costs.embedding_ns * (100 - SPEED_UP_PERCENT) // 100,
    )
    faster["the optimizer"] = replace(costs, optimizer_ns=less(costs.optimizer_ns))
    gains = [(name, 1 - step_time_ns(new) / step.step_time_ns) for name, new in faster.items()]
    return sorted((gain for gain in gains if gain[1] > 0), key=lambda gain: -gain[1])


def busy_share(document: PlanDocument) -> float:
    """Part of the step that the GPUs of a plan compute, on average."""
    assert document.config is not None
    busy = [
        replica.micro_batches * (stage.forward_s + stage.backward_s)
        for replica in document.replicas
        for stage in replica.stages
    ]
    return sum(busy) / document.config.slots / (document.step_time_s or 1.0)


def summary(document: PlanDocument, step: Step) -> Lines:
    """Lines on what limits the step and what would make it faster."""
    parts = [
        f"{percent(time_ns / step.step_time_ns)} {text}"
        for text, time_ns in by_type(document, step)
    ]
    lines = [("limited by", ", ".join(parts))]
    gains = [gain for gain in improvements(document, step) if gain[1] >= _LEAST_GAIN]
    if gains:
        (name, saved), *others = gains
        texts = [f"for {name} saves {percent(saved)} of the step"]
        texts += [f"for {name} {percent(saved)}" for name, saved in others]
        lines.append(("faster with", f"{SPEED_UP_PERCENT} % less time {', '.join(texts)}"))
    return lines
