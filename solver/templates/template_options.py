"""What may be asked of template generation; quick to import."""

from dataclasses import dataclass
from enum import StrEnum

from formulations.node_sharing import NodeSplit


class Distribution(StrEnum):
    """How the micro-batches of a step are shared out among the pipelines of a fleet."""

    STEP_TIME = "step-time"  #: the slowest pipeline is as fast as can be
    VARIANCE = "variance"  #: steps of least variance, as in Oobleck


class TemplateObjective(StrEnum):
    """What a template is best at."""

    STEP_TIME = "step-time"  #: simulated step of one pipeline, optimizer included
    OOBLECK = "oobleck"  #: T1 + T2 + T3, see `oobleck`


@dataclass(frozen=True)
class TemplateOptions:
    """What may be asked.

    micro_batch: sequences; None: see `generator_for`. micro_batches: of every
    template; None: its share of the global batch by nodes. time_limit_s: for all sizes together.
    """

    objective: TemplateObjective = TemplateObjective.STEP_TIME
    split: NodeSplit = NodeSplit.ALIGNED
    micro_batch: int | None = None
    micro_batches: int | None = None
    gap: float = 0.0
    time_limit_s: float | None = None
