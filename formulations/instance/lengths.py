"""Sequences of many lengths in one step, and what a user measured of strategies for them."""

from typing import Literal

from pydantic import Field

from formulations.instance.input_limits import MOST_CHOICES, Batch, Count, Name, Text
from formulations.instance.record import Record
from formulations.instance.transformer import Architecture

Rows = Literal["packed", "padded"]


class LengthClass(Record):
    """`count` sequences of a step, each of `tokens` at most."""

    tokens: Batch
    count: Batch


class MeasuredStrategy(Record):
    """A layout of the model over GPUs, alike on all replicas, with times of rows or classes.

    row_times_s: by tokens, of one row that is one sequence, forward and backward, on the slowest
    stage. class_times_s: by the tokens of a class, of all its sequences; of others it has none.
    per_visit_s: each time that sequences were run; per_step_s: once, if it holds the fp32 state.
    """

    name: Name
    data_parallel: Count
    tensor_parallel: Count
    pipeline_parallel: Count
    context_parallel: Count
    longest_row: Batch | None  #: None with times of classes
    row_times_s: tuple[tuple[Batch, float], ...] = Field(max_length=MOST_CHOICES)
    class_times_s: tuple[tuple[Batch, float], ...] = Field(max_length=MOST_CHOICES)
    per_visit_s: float
    per_step_s: float

    @property
    def num_gpus(self) -> int:
        """GPUs that it runs on."""
        replica = self.tensor_parallel * self.context_parallel * self.pipeline_parallel
        return self.data_parallel * replica


class MeasuredSwitch(Record):
    """From strategy `leave` to strategy `enter`, by name: seconds for what moves."""

    leave: Name
    enter: Name
    parameters_s: float
    gradients_s: float


class Lengths(Record):
    """What a step holds, how it fills rows, and what was measured of strategies.

    classes: by ascending length. architecture: of the model, whose layers have other costs in rows
    of other lengths. strategies: in place of those that the instance's GPUs allow. switching:
    between any two of them.
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
        return self.classes[-1].tokens
