"""Where a figure comes from: measured, published by who makes the thing, or assumed."""

from typing import Literal

from formulations.instance.extent import Name, Text
from formulations.instance.record import Record

NOT_STATED = "the instance"  # where it is written, and nothing else said
Kind = Literal["measured", "published", "assumed"]


class Evidence(Record):
    """Kind and source of some figures."""

    kind: Kind
    source: Text
    assumed: tuple[Name, ...] = ()  #: figures among these that are assumed, whatever the kind
