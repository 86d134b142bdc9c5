"""What a failure costs: the rules by which training systems recover.

ours: the step in flight is lost, and the pipelines are formed anew from templates (as in Oobleck,
Jang et al., SOSP 2023). restart: everything since the last checkpoint is lost, and all nodes
restart from it (as in Varuna, Athlur et al., EuroSys 2022). redundancy: a neighbour, which holds
the lost node's layers too, computes its part until the pipelines are rebalanced; a second failure
before that is fatal (as in Bamboo, Thorpe et al., NSDI 2023; the paper survives one that is no
neighbour's, so this is the worst case).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from formulations.fleet import Pipeline
from formulations.units import ceil_div

InFlight = Literal["lost", "background", "slowed"]


@dataclass(frozen=True)
class Configuration:
    """How the ready nodes train: step time, and the pause before the first step.

    nodes: those in use; the failure of another one costs nothing, unless layers are being copied.
    pipelines: on them, where the next configuration depends on it. lost: nodes that have failed
    since it was formed. loses_state: no node that is left holds some layer, so that training starts
    again.
    """

    nodes: frozenset[str]
    step_ns: int
    pause_ns: int
    pipelines: tuple[Pipeline, ...] = ()
    lost: frozenset[str] = frozenset()
    loses_state: bool = False


#: The next configuration, from the former one and the nodes that are ready; None: they cannot
#: train.
Reconfigure = Callable[[Configuration | None, frozenset[str]], Configuration | None]


@dataclass(frozen=True)
class Checkpoints:
    """A checkpoint of `time_ns`, during which nothing is trained, after every so many steps."""

    every_steps: int
    time_ns: int


@dataclass(frozen=True)
class Recovery:
    """What becomes of work in flight, and how nodes get ready.

    in_flight: what a failure makes of the step in flight. "lost": it is discarded at once.
    "background": the former configuration trains on until the next one takes over or another node
    fails, and the steps that end before that count (the rule of Oobleck's public simulator).
    "slowed": it is finished, what is left of it `slowdown_percent` of its time, and then the pause
    begins; a second failure before the pause is over, or at once, discards it and costs
    `fatal_pause_ns`.
    checkpoints: with them, a failure also discards all steps since the last whole checkpoint.
    node_ready_ns: from joining, or from the start, until a node can be used.
    """

    in_flight: InFlight = "lost"
    checkpoints: Checkpoints | None = None
    node_ready_ns: int = 0
    slowdown_percent: int = 100
    fatal_pause_ns: int = 0

    def slowed_ns(self, rest_ns: int) -> int:
        """Time for what is left of a step that a neighbour has to help with, rounded up."""
        return ceil_div(rest_ns * self.slowdown_percent, 100)


@dataclass(frozen=True)
class Policy:
    """A way to train and to recover, ready to be replayed. sources: where its figures come from."""

    reconfigure: Reconfigure
    recovery: Recovery
    samples_per_step: int
    sources: tuple[str, ...] = ()
