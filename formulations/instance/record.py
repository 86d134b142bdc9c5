"""The base of every value type that is read from or written to a file, by hand or not."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Frozen; refuses unknown fields, other types (true for 1, text for a number), nan and inf."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
