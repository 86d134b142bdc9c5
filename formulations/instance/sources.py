"""Where a figure comes from: measured, published by who makes the thing, or assumed."""

from typing import Literal

from formulations.instance.input_limits import Name, Text
from formulations.instance.record import Record

NOT_STATED = "the instance"  # where it is written, and nothing else said
Kind = Literal["measured", "published", "assumed"]


class Evidence(Record):
    """Kind and source of some figures."""

    kind: Kind
    source: Text
    assumed: tuple[Name, ...] = ()  #: figures among these that are assumed, whatever the kind


class GpuEvidence(Record):
    """Where the figures of a GPU type come from."""

    gpu: Name
    peak: Evidence  #: in the workload's precision
    memory_bandwidth: Evidence
    memory: Evidence
    intra_node: Evidence
    inter_node: Evidence
    layer_times: Evidence  #: of a profile, or of the analytic model's efficiency
