"""What preemptions cost, by checkpoints and restarts, and what was measured of it.

From the public simulator of Oobleck (SOSP 2023; SymbioticLab/Oobleck, tools/simulator, commit
103c477), which its Table 2 was made with: on A40 nodes, by the size of the model. Varuna's restart
of BERT-large varies there with the number of nodes, from 49.1 to 112 s; 76 s is its default.
"""

from typing import Annotated, NamedTuple

from pydantic import Field

from formulations.instance.machines import NOT_STATED, Kind
from formulations.instance.record import Quantity, Seconds, Section, Text

Pause = Annotated[Seconds, Quantity("time", most="100 h", example="2 min")]
CheckpointEvery = Annotated[
    float, Field(ge=1e-6, le=1e9), Quantity("time", least="1 ms", most="10000 h", example="10 min")
]


class PreemptionFile(Section):
    """What preemptions cost: restarts from checkpoints, see `formulations.costs.renting`."""

    restart_s: Pause | None = Field(None, validation_alias="restart")
    """From a preemption to the next step, with another node in its place, such as 2 min. Default:
    Varuna's for a model of this size, as measured for Oobleck."""
    checkpoint_s: Pause | None = Field(None, validation_alias="checkpoint")
    """Time of a checkpoint, such as 15 s. Default: as `restart`."""
    checkpoint_every_s: CheckpointEvery | None = Field(None, validation_alias="checkpoint_every")
    """Training between two checkpoints, such as 10 min. Default: what costs least."""
    kind: Kind = "assumed"
    """How the figures were found."""
    source: Text = NOT_STATED
    """Where the figures come from."""


class Preemption(PreemptionFile):
    """What a preemption costs where checkpoints are all that is left, as in Varuna."""

    restart_s: Seconds
    checkpoint_s: Seconds  #: during which nothing is trained


SOURCE = "public simulator of Oobleck (SOSP 2023)"
NODE_READY_S = 45.0  #: from joining until a node can be used


class Costs(NamedTuple):
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
    costs = next((costs for costs in MEASURED if parameters <= costs.parameters), MEASURED[-1])
    return costs, max(1.0, parameters / costs.parameters)


def measured_as(costs: Costs, factor: float) -> str:
    """Whose costs these are."""
    scaled = f", times {factor:.3g} for the size" if factor > 1 else ""
    return f"as {costs.model}{scaled}, {SOURCE}"


def resolve_preemption(written: PreemptionFile | None, parameters: int) -> Preemption:
    """As written, else Varuna's for a model of this size; checkpoints as often as costs least."""
    costs, factor = costs_of_size(parameters)
    usual = {
        "restart": NODE_READY_S + costs.varuna_restart_s * factor,
        "checkpoint": costs.varuna_checkpoint_s * factor,
    }
    fields: dict[str, object] = dict(written or PreemptionFile())
    missing = [name for name in usual if fields[f"{name}_s"] is None]
    if missing:
        source = f"Varuna's, {measured_as(costs, factor)}"
        if written is not None:
            source = f"{written.source}; {' and '.join(missing)} {source}"
        fields |= {f"{name}_s": usual[name] for name in missing}
        fields |= {"kind": "assumed", "source": source}
    return Preemption.model_validate(fields)
