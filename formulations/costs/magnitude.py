"""Figures that cannot be meant, refused before they leave the range of 64-bit integers.

Costs are added up along paths of one step, and such sums are multiplied with numbers of stages:
bounds compare n (T - latency) with N C - S, see `solver.bounds.cycle_bound`, where N C <= n T + S
for the windows of n <= p stages that are looked at, and T is a trial time. T is at most twice the
longest path. So all products stay below 2^63 if (p + 2) times that path stays below 2^59.
"""

from formulations.errors import InstanceError

_NS_PER_DAY = 86_400 * 10**9
#: Floats and CP-SAT count whole ns up to here.
_MOST_NS = 1 << 52
_MOST_PRODUCT_NS = 1 << 59
_MOST_BYTES = 1 << 60


def check_step(time_ns: float, where: str, what: str, stages: int = 1) -> None:
    """Returns if `what` may take this long for one step of so many stages; InstanceError if not."""
    most_ns = min(_MOST_NS, _MOST_PRODUCT_NS // (stages + 2))
    if not time_ns <= most_ns:
        needed = f"{what} needs {time_ns / _NS_PER_DAY:.3g} days for one step"
        over = f" over {stages} stages" if stages > 1 else ""
        allowed = f"at most {most_ns / _NS_PER_DAY:.3g} days{over}: a smaller workload, or faster"
        raise InstanceError(where, needed, f"{allowed} GPUs and links")


def check_memory(size_bytes: float, where: str) -> None:
    """Returns if a step may keep this many bytes in all; InstanceError if not."""
    if not size_bytes <= _MOST_BYTES:
        needed = f"{size_bytes / (1 << 50):.3g} PiB for one replica and all sequences of a step"
        raise InstanceError(where, needed, "at most 1024 PiB: a smaller workload")
