"""What limits a step: where the time of its critical path goes, and what would shorten it."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from formulations.costs.plan_costs import PlanCosts
from solver.document import PlanDocument
from solver.report.layout import Lines
from solver.report.naming import WORDS
from solver.report.quantities import percent, ranges
from solver.simulate import Array, Step, step_time_ns

SPEED_UP_PERCENT = 10
_LEAST_GAIN = 0.001
_TRANSFERS = "transfers between stages"


class Spent(NamedTuple):
    """What a critical path is made of, in words; kind: of operations, transfers, or a GPU type."""

    text: str
    time_ns: int
    kind: str


def by_type(document: PlanDocument, step: Step) -> list[Spent]:
    """What the critical path is made of, most first.

    Gaps between its operations are transfers. Stages on GPUs of one type stand together; the one
    with most of their time is named.
    """
    sends = " and sends" if step.costs.blocking_sends else ""
    path, waits = step.critical_path, WORDS["waits"]
    # By what the time goes into, then by stage; None: of no stage alone
    times: dict[tuple[str, str], Counter[int | None]] = defaultdict(Counter)
    for operation in path:
        kind, stage = operation.kind, operation.stage
        if kind in waits:
            name = waits[kind]
        else:
            types = sorted({replica.stages[stage].gpu_type for replica in document.replicas})
            name, kind = f"compute{sends} on {', '.join(types)}", types[0]
        alone = kind == "sync" or kind not in waits
        times[name, kind][stage if alone else None] += operation.end_ns - operation.start_ns
    for before, after in pairwise(path):
        times[_TRANSFERS, "transfers"][None] += after.start_ns - before.end_ns
    spent = []
    for (name, kind), of_stage in times.items():
        total_ns = of_stage.total()
        stages = [
            stage for stage, time_ns in of_stage.most_common() if stage is not None and time_ns
        ]
        if stages:
            plural = "s" if len(stages) > 1 else ""
            mostly = f", most of it stage {stages[0]}"
            if not plural or 2 * of_stage[stages[0]] <= total_ns:
                mostly = ""
            name += f" (stage{plural} {ranges(stages)}{mostly})"
        if total_ns:
            spent.append(Spent(name, total_ns, kind))
    return sorted(spent, key=lambda part: -part.time_ns)


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
    busy = [
        replica.micro_batches * (stage.forward_s + stage.backward_s)
        for replica in document.replicas
        for stage in replica.stages
    ]
    return sum(busy) / document.planned.slots / (document.step_time_s or 1.0)


def summary(document: PlanDocument, step: Step) -> Lines:
    """Lines on what limits the step and what would make it faster."""
    parts = [
        f"{percent(time_ns / step.step_time_ns)} {text}"
        for text, time_ns, _ in by_type(document, step)
    ]
    yield "limited by", ", ".join(parts)
    gains = [gain for gain in improvements(document, step) if gain[1] >= _LEAST_GAIN]
    if gains:
        (name, saved), *others = gains
        texts = [f"for {name} saves {percent(saved)} of the step"]
        texts += [f"for {name} {percent(saved)}" for name, saved in others]
        yield "faster with", f"{SPEED_UP_PERCENT} % less time {', '.join(texts)}"
