"""The rules of recovery policies with the costs measured by Oobleck's authors on A40 nodes."""

from formulations.instance.preemption import NODE_READY_S, costs_of_size, measured_as
from formulations.units import ceil_ns
from solver.replay.policy import Checkpoints, InFlight, Recovery

CHECKPOINT_EVERY_STEPS = 10
BAMBOO_SLOWDOWN_PERCENT = 150
BAMBOO_RESTART_S = 30.0


def recovery_of_size(
    policy: str, parameters: int, in_flight: InFlight
) -> tuple[int, Recovery, str]:
    """Pause after a failure, in ns, the rules of `policy`, and where these figures come from."""
    costs, factor = costs_of_size(parameters)
    ready_ns = ceil_ns(NODE_READY_S)
    pause_s = {
        "oobleck": costs.oobleck_s,
        "varuna": costs.varuna_restart_s,
        "bamboo": costs.bamboo_rebalance_s,
    }[policy]
    recovery = {
        "oobleck": Recovery(in_flight, None, ready_ns),
        "varuna": Recovery(
            in_flight,
            Checkpoints(CHECKPOINT_EVERY_STEPS, ceil_ns(costs.varuna_checkpoint_s * factor)),
            ready_ns,
        ),
        "bamboo": Recovery(
            "slowed", None, ready_ns, BAMBOO_SLOWDOWN_PERCENT, ceil_ns(BAMBOO_RESTART_S)
        ),
    }[policy]
    return ceil_ns(pause_s * factor), recovery, measured_as(costs, factor)
