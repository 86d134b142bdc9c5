"""The base of every value type that is read from or written to a file, by hand or not."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Frozen; refuses unknown fields, other types (true for 1, text for a number), nan and inf."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other fields, which works out anew what follows from them."""
        copied = super().model_copy(update=update, deep=deep)
        for name in [*copied.__dict__]:
            if isinstance(getattr(type(copied), name, None), cached_property):
                del copied.__dict__[name]
        return copied

    def but(self, **fields: Any) -> Self:
        """A copy with other fields; where one is a record, a mapping changes fields of that."""
        for name, value in fields.items():
            own = getattr(self, name)
            if isinstance(own, Record) and isinstance(value, Mapping):
                fields[name] = own.but(**value)
        return self.model_copy(update=fields)
