"""What all models of written files share: strictness, names, counts."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from formulations.instance.quantities import one_line

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[Text, AfterValidator(one_line)]
Count = Annotated[int, Field(ge=1, le=10**6)]


class Written(BaseModel):
    """Base of what is written by hand: no unknown fields, no guessing of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
