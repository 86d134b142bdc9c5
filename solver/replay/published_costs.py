"""Recovery costs measured by Oobleck's authors on A40 nodes, by the size of the model.

From the public simulator of Oobleck (SOSP 2023; SymbioticLab/Oobleck, tools/simulator, commit
103c477), which its Table 2 was made with. Varuna's restart of BERT-large varies there with the
number of nodes, from 49.1 to 112 s; 76 s is its default.
"""

from dataclasses import dataclass

from formulations.units import ceil_ns
from solver.replay.policy import Checkpoints, InFlight, Recovery

SOURCE = "public simulator of Oobleck (SOSP 2023)"
NODE_READY_S = 45.0
CHECKPOINT_EVERY_STEPS = 10
BAMBOO_SLOWDOWN_PERCENT = 150
BAMBOO_RESTART_S = 30.0


@dataclass(frozen=True)
class Costs:
    """Seconds that a model takes to recover; `parameters` of it, as hetplan counts them."""

    model: str
    parameters: int
    oobleck_s: float
    varuna_restart_s: float
    varuna_checkpoint_s: float
    bamboo_rebalance_s: float


MEASURED = (
    Costs("BERT-large", 335_141_888, 2, 76, 15.8, 76),
    Costs("GPT-2", 354_823_168, 2, 83, 11.5, 80),
    Costs("GPT-3 medium", 355_871_744, 3, 78.7, 11.2, 100),
    Costs("GPT-3 2.7B", 2_651_553_280, 6, 515, 50, 230),
    Costs("GPT-3 6.7B", 6_658_404_352, 10, 701, 120, 450),
)


def costs_of_size(parameters: int) -> tuple[Costs, float]:
    """The smallest measured model of at least this size, and a factor on its costs.

    The factor is 1; above the largest model it is the size in proportion.
    """
    for costs in MEASURED:
        if parameters <= costs.parameters:
            return costs, 1.0
    return MEASURED[-1], parameters / MEASURED[-1].parameters


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
    scaled = f", times {factor:.3g} for the size" if factor > 1 else ""
    return ceil_ns(pause_s * factor), recovery, f"as {costs.model}{scaled}, {SOURCE}"
