"""How large what is read may be: one set of limits, and the checks, for every kind of file.

Instances, profiles, plans and fleets take their names and numbers from here, so that no file can
ask for more memory or time than its limits are worth: what is beyond them is refused before
anything is built from it. The limits are far above any real training: Megatron-LM's largest runs
have some 10^4 GPUs, 10^2 layers and 10^4 sequences per step.
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated

from pydantic import AfterValidator, Field

from formulations.errors import InstanceError
from formulations.instance.record import refusal, shown

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


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise refusal(shown(text), "printable text in one line")
    return text


def _lines(text: str) -> str:
    if not all(line.isprintable() for line in text.split("\n")):
        raise refusal(shown(text), "printable text")
    return text


Text = Annotated[str, Field(min_length=1, max_length=MOST_TEXT), AfterValidator(_lines)]
Line = Annotated[str, Field(max_length=MOST_NAME), AfterValidator(_one_line)]
Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME), AfterValidator(_one_line)]
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
    """Whether a step is short enough to be simulated, operation by operation.

    micro_batches: of all pipelines together; most_of_one: of the one that has most.
    """
    operations = 2 * num_stages * micro_batches
    return most_of_one <= MOST_MICRO_BATCHES and operations <= MOST_OPERATIONS
