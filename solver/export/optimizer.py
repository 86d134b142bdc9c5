"""Which of the planned optimizer states a framework keeps."""

from collections.abc import Iterator

from formulations.instance.precision import FORMATS, MASTER_BYTES
from formulations.instance.workload import OPTIMIZER_BYTES, OptimizerState, Workload
from solver.export.faults import Fault
from solver.export.job import Job


def planned_states(workload: Workload) -> OptimizerState | None:
    """Format of Adam's moments in a plan's memory; None where it is none of those known."""
    master_bytes = FORMATS[workload.precision].master_bytes
    sizes = workload.optimizer_bytes + MASTER_BYTES - master_bytes, workload.optimizer_block_bytes
    return next((name for name, known in OPTIMIZER_BYTES.items() if known == sizes), None)


def state_faults(job: Job, name: str, known: tuple[OptimizerState, ...]) -> Iterator[Fault]:
    """Refuses moments in a format that the framework does not keep them in."""
    found = planned_states(job.instance.workload)
    if found not in (None, *known):
        allowed = " or ".join(known)
        yield Fault(
            f"optimizer_state: {found} is not for {name}",
            f"workload.optimizer_state: {allowed}, and solve again",
        )
