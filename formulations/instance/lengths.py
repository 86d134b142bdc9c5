"""Sequences of many lengths in one step: the section `lengths`, as written and as it is meant."""

from typing import Annotated, Literal

from pydantic import Field

from formulations.instance.machines import NOT_STATED
from formulations.instance.record import MOST_CHOICES, Batch, Count, Name, Quantity, Record, Text
from formulations.instance.transformer import Architecture

Rows = Literal["packed", "padded"]
#: Classes into which the lengths of a file or a distribution are put, unless said otherwise.
CLASSES = 32

RowTime = Annotated[float, Quantity("time", least="1 ns", most="100 h", example="85 ms")]
FixedTime = Annotated[float, Quantity("time", most="24 h", example="1.8 s")]


class LengthClass(Record):
    """`count` sequences of a step, of about one length, each of `up_to` tokens at most."""

    up_to: Batch = Field(description="Tokens of the longest of them.")
    count: Batch = Field(description="Sequences of a step.")


class LogNormal(Record):
    """Lengths whose logarithms are normal, cut off at the longest."""

    median: Batch = Field(description="Tokens of the sequence in the middle.")
    sigma: float = Field(
        gt=0, le=10, description="Standard deviation of the natural logarithm of the length."
    )


class MeasuredStrategy(Record):
    """A layout of the model over GPUs, alike on all replicas, with times of rows or classes."""

    name: Name | None = Field(default=None, description="Default: its degrees.")
    data_parallel: Count = Field(description="Replicas.")
    tensor_parallel: Count = Field(description="GPUs per tensor-parallel group.")
    pipeline_parallel: Count = Field(description="Stages.")
    context_parallel: Count = Field(default=1, description="GPUs that share every row.")
    longest_row: Batch | None = Field(
        default=None, description="Tokens of the longest row that fits the memory, for row_times."
    )
    row_times: dict[Batch, RowTime] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Tokens of a row that is one sequence -> forward and backward time of it on the"
        " slowest stage, such as 85 ms. Times between and beyond follow a l^2 + b l + c, which is"
        " at least what was measured; of a single row, they follow the model's FLOPs.",
    )
    class_times: dict[Batch, RowTime] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Instead: up_to of a class of the histogram -> time of all its sequences of a"
        " step, such as 8.2 s. Those of several classes add up; classes that are left out it does"
        " not run.",
    )
    per_visit: FixedTime = Field(
        default=0.0,
        description="Each time that it has run sequences: to reduce gradients over its replicas,"
        " such as 0.3 s. Default: 0, or in the times.",
    )
    per_step: FixedTime = Field(
        default=0.0,
        description="Once a step, where it holds the optimizer's state: to update the parameters"
        " and gather them, such as 80 ms. Default: 0, or in the times.",
    )

    @property
    def title(self) -> str:
        """Its name, or its degrees."""
        tp, cp, pp = self.tensor_parallel, self.context_parallel, self.pipeline_parallel
        shared = f", cp {cp}" if cp > 1 else ""
        return self.name or f"dp {self.data_parallel}, tp {tp}{shared}, pp {pp}"

    @property
    def num_gpus(self) -> int:
        """GPUs that it runs on."""
        replica = self.tensor_parallel * self.context_parallel * self.pipeline_parallel
        return self.data_parallel * replica


class MeasuredSwitch(Record):
    """Time from one strategy to another; the way back takes as long unless it is listed."""

    leave: Name = Field(description="Name of the strategy before.")
    enter: Name = Field(description="Name of the strategy after.")
    parameters: FixedTime = Field(description="Time to move the parameters, such as 1.8 s.")
    gradients: FixedTime = Field(description="Time to move the gradients, such as 3.6 s.")


class LengthsFile(Record):
    """Sequences of many lengths in a step: one of histogram, file, log_normal.

    `hetplan lengths` decides which strategy runs which of them; other commands see a step of as
    many sequences, all of `workload.sequence_length`.
    """

    source: Text = Field(default=NOT_STATED, description="Where the lengths come from.")
    histogram: list[LengthClass] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Classes of sequences by ascending length; counts are those of a step.",
    )
    file: Name | None = Field(
        default=None,
        description="Path of a .csv, .jsonl or .npy file of lengths in tokens, relative to this"
        " file's folder. In .csv a column, in .jsonl a field called length, tokens or num_tokens,"
        " or nothing but numbers; in .npy one dimension of integers.",
    )
    log_normal: LogNormal | None = Field(default=None, description="A distribution.")
    sequences: Batch | None = Field(
        default=None,
        description="Sequences of a step, for log_normal and file. Default: all those of the file.",
    )
    longest: Batch | None = Field(
        default=None,
        description="Tokens at which longer sequences are cut off, for log_normal and file.",
    )
    classes: int | None = Field(
        default=None,
        ge=1,
        le=MOST_CHOICES,
        description="Most classes that lengths are put into, each rounded up to the longest of its"
        f" class, for log_normal and file. Default: {CLASSES}.",
    )
    rows: Rows = Field(
        default="packed",
        description="packed: rows hold several sequences, which attention keeps apart (needs flash"
        " attention). padded: one sequence each, padded to the upper end of its class.",
    )
    strategies: list[MeasuredStrategy] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Measured strategies. Default: those of the degrees in search, by the model of"
        " cost.",
    )
    switching: list[MeasuredSwitch] | None = Field(
        default=None,
        min_length=1,
        max_length=10**4,
        description="Measured times between them, which several of them need.",
    )


class Lengths(Record):
    """What a step holds, how it fills rows, and what was measured of strategies.

    classes: by ascending length. architecture: of the model, whose layers have other costs in rows
    of other lengths. strategies: in place of those that the instance's GPUs allow. switching:
    between any two of them, by their titles.
    """

    source: Text
    classes: tuple[LengthClass, ...] = Field(min_length=1, max_length=MOST_CHOICES)
    rows: Rows
    architecture: Architecture
    strategies: tuple[MeasuredStrategy, ...] = ()
    switching: tuple[MeasuredSwitch, ...] = ()

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return self.classes[-1].up_to
