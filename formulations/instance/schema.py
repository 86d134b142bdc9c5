"""What a user may write in an instance file. `formulations.instance.resolve` fills in the rest.

Texts with units are plain numbers in base units here (B, B/s, s, FLOP/s, USD/h, /h, USD).
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from formulations.instance.calibration import CalibrationFile
from formulations.instance.input_limits import Batch, Name, Text
from formulations.instance.instance import LimitsFile, Objective
from formulations.instance.preemption import PreemptionFile
from formulations.instance.profile import ProfileFile
from formulations.instance.record import (
    MAPPING,
    NAME,
    Record,
    name_or_mapping,
)
from formulations.instance.schema_cluster import ClusterFile
from formulations.instance.schema_lengths import LengthsFile
from formulations.instance.search import SearchFile
from formulations.instance.sizes import TransformerSizes
from formulations.instance.workload import OptimizerState, Precision


class WorkloadFile(Record):
    """The model to train: exactly one of catalogue, huggingface, sizes; and how it is trained."""

    catalogue: Name | None = Field(default=None, description="Name in the workload catalogue.")
    huggingface: Name | None = Field(
        default=None,
        description="Path of a Hugging Face config.json, relative to this file's folder.",
    )
    sizes: TransformerSizes | None = Field(default=None, description="Sizes of a transformer.")
    name: Name | None = Field(default=None, description="Name in reports.")
    source: Text | None = Field(default=None, description="Where the sizes come from.")
    sequence_length: Batch | None = Field(
        default=None, description="Tokens per sequence; default: the catalogue's."
    )
    global_batch: Batch | None = Field(
        default=None, description="Sequences per step; default: the catalogue's."
    )
    precision: Precision = Field(
        default="bf16",
        description="Of products, parameters and activations. fp8: products of blocks alone, all"
        " else is kept in 16 bit.",
    )
    gradient_precision: Literal["fp32", "fp16", "bf16"] = Field(
        default="fp32", description="Of gradients, in memory and on the wire."
    )
    optimizer_state: OptimizerState = Field(
        default="fp32",
        description="Of Adam's moments; the master copy of the parameters stays in fp32. 8bit:"
        " with a scale per block of 2048 (Dettmers et al. 2022).",
    )
    flash_attention: bool | None = Field(
        default=None,
        description="Are attention scores recomputed instead of stored? Default: what the profile"
        " says, else in fp16, bf16 and fp8 in plans whose GPUs are all Ampere or later.",
    )


Profile = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[ProfileFile, Tag(MAPPING)],
    Discriminator(name_or_mapping),
]


class InstanceFile(Record):
    """One planning problem."""

    name: Name = Field(description="Name of the instance.")
    source: Text = Field(default="not stated", description="Where its figures come from.")
    workload: WorkloadFile = Field(description="The model and its training settings.")
    cluster: ClusterFile = Field(description="The machines.")
    profile: Profile | None = Field(
        default=None,
        description="Measured layer times, or the path of a file with them, relative to this"
        " file's folder. Default: the analytic model.",
    )
    calibration: CalibrationFile | None = Field(
        default=None, description="Corrections of layer times by measured steps."
    )
    search: SearchFile = Field(default=SearchFile(), description="The plans to choose among.")
    limits: LimitsFile = Field(default_factory=LimitsFile, description="What a plan must respect.")
    objective: Objective = Field(default=Objective(), description="What is minimised.")
    preemption: PreemptionFile | None = Field(
        default=None, description="What preemptions cost, for cost_per_useful_sequence."
    )
    lengths: LengthsFile | None = Field(
        default=None,
        description="Sequences of many lengths in a step. Default: all are as long as the workload"
        " says.",
    )


def instance_json_schema() -> dict[str, Any]:
    """JSON schema of instance files, for editors."""
    schema = InstanceFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
