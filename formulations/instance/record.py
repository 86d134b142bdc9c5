"""The base of every value type that is read from or written to a file, by hand or not.

And field types: quantities with units, shares, one value or a list of them; and how large what is
read may be. All files take their names and numbers from here, so that none can ask for more memory
or time than its limits are worth: what is beyond them is refused before anything is built from it.
They are far above any real training: Megatron-LM's largest runs have some 10^4 GPUs, 10^2 layers
and 10^4 sequences per step.
"""

import ast
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import cleandoc, getsource
from itertools import accumulate, pairwise
from textwrap import dedent
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from formulations.errors import InstanceError
from formulations.units import UNITS, parse_quantity

MOST_BYTES = 1 << 28  #: of a file
MOST_VALUES = 10**7  #: of a JSON file: numbers, texts, lists and mappings
MOST_WRITTEN_BYTES = 1 << 20  #: of a YAML file
MOST_WRITTEN_VALUES = 2 * 10**5  #: of a YAML file, with aliases and merge keys written out
MOST_NAME = 200  #: characters
MOST_TEXT = 10_000

MOST_LAYERS = 1000  #: of one stack; a chain has two of them at most, an embedding and a head
MOST_CHAIN = 2 * MOST_LAYERS + 2
MOST_GROUPS = 100  #: of equal nodes
MOST_ZONE_PAIRS = MOST_GROUPS * (MOST_GROUPS - 1) // 2
MOST_CHOICES = 1000  #: of one list
MOST_CHOICES_OF_TERMS = 10  #: groups with a price on demand and one on spot
MOST_GPUS_PER_NODE = 1024
MOST_GPUS = 10**6  #: and nodes, stages, replicas
MOST_BATCH = 10**8  #: sequences per step, tokens per sequence
MOST_MICRO_BATCHES = 1 << 15  #: of one pipeline's step that is simulated
MOST_OPERATIONS = 1 << 19  #: forward and backward passes of a step that is simulated

TOO_LONG = (
    f"a step of more than {MOST_MICRO_BATCHES:,} micro-batches in a pipeline, or more than"
    f" {MOST_OPERATIONS:,} passes through stages: too long to be simulated"
)


class Record(BaseModel):
    """Frozen; refuses unknown fields, other types (true for 1, text for a number), nan and inf.

    A field with an alias is called so in files that people write, with a unit in the value instead
    of one in the name: `written`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_by_name=True
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other fields, which works out anew what follows from them."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(copied).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def but(self, **fields: Any) -> Self:
        """A copy with other fields; where one is a record, a mapping changes fields of that."""
        for name, value in fields.items():
            before = getattr(self, name)
            if isinstance(before, Record) and isinstance(value, Mapping):
                fields[name] = before.but(**value)
        return self.model_copy(update=fields)


def _described(schema: dict[str, Any], section: type["Section"]) -> None:
    for name, text in section.meanings().items():
        schema["properties"][name]["description"] = text


class Section(Record):
    """Of a file that people write: a text below a field says what it means."""

    model_config = ConfigDict(json_schema_extra=_described)

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """What the fields mean, by the name in the file.

        Read from the source when somebody asks: pydantic's own way reads all of it at every start.
        """
        texts: dict[str, str] = {}
        for section in cls.__mro__[cls.__mro__.index(Section) - 1 :: -1]:
            (definition,) = ast.parse(dedent(getsource(section))).body
            assert isinstance(definition, ast.ClassDef)
            for field, text in pairwise(definition.body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    name = ast.unparse(field.target)
                    alias = cls.model_fields[name].validation_alias
                    texts[str(alias or name)] = cleandoc(ast.literal_eval(text.value))
        return texts


def without_nulls(written: object) -> object:
    """What was written, less fields that are null: they have their defaults."""
    if not isinstance(written, Mapping):
        return written
    return {name: value for name, value in written.items() if value is not None}


_NUMBER_PATTERN = r"^\s*[-+]?[0-9][0-9_]*\.?[0-9]*([eE][-+]?[0-9]+)?\s*"

#: Tags of unions that look at the form of what was written; they mark branches in error locations.
NAME, MAPPING, NUMBER, LIST = TAGS = ("<name>", "<mapping>", "<number>", "<list>")


NUMBER_OR_MAPPING = Discriminator(lambda value: MAPPING if isinstance(value, dict) else NUMBER)
NUMBER_OR_LIST = Discriminator(lambda value: LIST if isinstance(value, list) else NUMBER)


def refusal(found: str, allowed: str) -> PydanticCustomError:
    """Validation error that keeps apart what was found and what is allowed."""
    return PydanticCustomError(
        "refusal", "{found}; allowed: {allowed}", {"found": found, "allowed": allowed}
    )


def shown(value: object) -> str:
    """Short text of a value from a file, for an error message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


#: Annotation of a tuple that files state as a list.
FROM_LIST = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
#: Context of the validation of what people write.
WRITTEN = "written"


@dataclass(frozen=True)
class Quantity:
    """Annotation of a number in the base unit, and a text with a unit where people write it.

    Both ends of the range are allowed; a least number of 0 needs no unit.
    """

    dimension: str  #: a key of `formulations.units.UNITS`
    least: str
    most: str
    example: str
    rounded: Callable[[float], float] = float  #: floor or ceil of whole numbers

    def parse(self, value: object) -> float:
        """Value in the base unit; raises the error that names the units or the range."""
        try:
            number = parse_quantity(value, self.dimension)
        except ValueError:
            aliases = ("bps", "b/s")
            units = [unit for unit in UNITS[self.dimension] if not unit.endswith(aliases)]
            allowed = f"a number with its unit, such as {self.example} (units: {', '.join(units)})"
            raise refusal(shown(value), allowed) from None
        least = 0.0 if self.least == "0" else parse_quantity(self.least, self.dimension)
        if least <= number <= parse_quantity(self.most, self.dimension):
            return self.rounded(number)
        raise refusal(shown(value), f"at least {self.least} and at most {self.most}")

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def read(value: object, info: ValidationInfo) -> object:
            return self.parse(value) if info.context == WRITTEN else value

        return core_schema.with_info_before_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        pattern = f"{_NUMBER_PATTERN}({'|'.join(UNITS[self.dimension])})\\s*$"
        return {"type": "string", "pattern": pattern, "examples": [self.example]}


def _share(value: object) -> float:
    number: object = value
    if isinstance(value, str) and value.strip().endswith("%"):
        with suppress(ValueError):
            number = float(value.strip().removesuffix("%")) / 100
    if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < 1:
        return float(number)
    raise refusal(shown(value), "a share from 0 to below 1 such as 0.05 or 5 %")


_SHARES: list[JsonSchemaValue] = [
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    {"type": "string", "pattern": f"{_NUMBER_PATTERN}%\\s*$"},
]
#: From 0 to below 1; in the file also "5 %".
Fraction = Annotated[float, BeforeValidator(_share), WithJsonSchema({"anyOf": _SHARES})]


@dataclass(frozen=True)
class OneOrMany:
    """Annotation of a tuple that may be written as one bare value; no value may be repeated."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def as_tuple(value: object) -> object:
            return tuple(value) if isinstance(value, list | tuple) else (value,)

        listed = core_schema.no_info_before_validator_function(as_tuple, handler(source))
        return core_schema.no_info_after_validator_function(_without_repeats, listed)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        several = handler(schema)
        return {"anyOf": [several["items"], several | {"minItems": 1, "uniqueItems": True}]}


def _without_repeats(values: tuple[object, ...]) -> tuple[object, ...]:
    if not values:
        raise refusal("an empty list", "at least one value, or no such field")
    for i, value in enumerate(values):
        if value in values[:i]:
            raise refusal(f"{shown(value)} twice", "each value once")
    return values


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise refusal(shown(text), "printable text in one line")
    return text


def _lines(text: str) -> str:
    if not text.replace("\n", "").isprintable():
        raise refusal(shown(text), "printable text")
    return text


Text = Annotated[str, Field(min_length=1, max_length=MOST_TEXT), AfterValidator(_lines)]
Line = Annotated[str, Field(max_length=MOST_NAME), AfterValidator(_one_line)]
Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME), AfterValidator(_one_line)]
Mapped = TypeVar("Mapped")
#: A name, or in its place the mapping of what it would stand for.
NameOr = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[Mapped, Tag(MAPPING)],
    Discriminator(lambda value: NAME if isinstance(value, str) else MAPPING),
]
Count = Annotated[int, Field(ge=1, le=MOST_GPUS)]
Index = Annotated[int, Field(ge=0, lt=MOST_GPUS)]
Batch = Annotated[int, Field(ge=1, le=MOST_BATCH)]
GpusPerNode = Annotated[int, Field(ge=1, le=MOST_GPUS_PER_NODE)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Bytes = Annotated[int, Field(ge=0, le=1 << 62)]
Figure = Annotated[int, Field(ge=0, le=10**60)]  # FLOPs, bytes: what costs.magnitude judges


def printable(text: str, most: int = MOST_NAME) -> str:
    """The text in one line, or its beginning, with what cannot be printed as escapes."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def check_extent(where: str, num_values: int, most: int) -> None:
    """Returns if a file may have so many values; InstanceError if not."""
    if num_values > most:  # a number that nobody could read by its power of ten
        number = f"{num_values:,}" if num_values < 10**15 else "more than 10^15"
        raise InstanceError(where, f"{number} values", f"at most {most:,} in a file")


def first_beyond(counts: Iterable[int], most: int) -> int | None:
    """Index of the first count with which the sum is above `most`; None if it never is."""
    sums = enumerate(accumulate(counts))
    return next((index for index, total in sums if total > most), None)


def can_be_simulated(num_stages: int, micro_batches: int, most_of_one: int) -> bool:
    """Whether a step of so many micro-batches in all, and in one pipeline, can be simulated."""
    operations = 2 * num_stages * micro_batches
    return most_of_one <= MOST_MICRO_BATCHES and operations <= MOST_OPERATIONS
