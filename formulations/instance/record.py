"""The base of every value type that is read from or written to a file."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Frozen, hashable, refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)
