"""Sequences of many lengths in one step: the section `lengths`, and what it means for a step."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from formulations.errors import all_of
from formulations.instance.documents import Place
from formulations.instance.length_classes import (
    LengthClass,
    classes_of,
    log_normal_classes,
    read_lengths,
)
from formulations.instance.machines import NOT_STATED
from formulations.instance.record import (
    MOST_BATCH,
    MOST_CHOICES,
    Batch,
    Count,
    Name,
    Quantity,
    Record,
    Section,
    Text,
    first_beyond,
    shown,
)
from formulations.instance.resolve_search import Given
from formulations.instance.resolve_workload import WorkloadFile, flash_remedy, only_origin
from formulations.instance.transformer import Architecture
from formulations.units import ceil_div

Rows = Literal["packed", "padded"]
#: Classes into which the lengths of a file or a distribution are put, unless said otherwise.
CLASSES = 32
#: A step's sequences, unless the workload says how long they are, are rounded up to a multiple of
#: it: GPUs that share a sequence split it evenly.
ROW_MULTIPLE = 128

RowTime = Annotated[float, Quantity("time", "1 ns", "100 h", "85 ms")]
FixedTime = Annotated[float, Quantity("time", "0", "24 h", "1.8 s")]
TimesByTokens = dict[Batch, RowTime]


class LogNormal(Section):
    """Lengths whose logarithms are normal, cut off at the longest."""

    median: Batch
    """Tokens of the sequence in the middle."""
    sigma: float = Field(gt=0, le=10)
    """Standard deviation of the natural logarithm of the length."""


class MeasuredStrategy(Section):
    """A layout of the model over GPUs, alike on all replicas, with times of rows or classes."""

    name: Name | None = None
    """Default: its degrees."""
    data_parallel: Count
    """Replicas."""
    tensor_parallel: Count
    """GPUs per tensor-parallel group."""
    pipeline_parallel: Count
    """Stages."""
    context_parallel: Count = 1
    """GPUs that share every row."""
    longest_row: Batch | None = None
    """Tokens of the longest row that fits the memory, for row_times."""
    row_times: TimesByTokens | None = Field(None, min_length=2, max_length=MOST_CHOICES)
    """Tokens of a row that is one sequence -> forward and backward time of it on the slowest stage,
    such as 85 ms, of two rows at least. Times between and beyond follow a l^2 + b l + c, which is
    at least what was measured."""
    class_times: TimesByTokens | None = Field(None, min_length=1, max_length=MOST_CHOICES)
    """Instead: up_to of a class of the histogram -> time of all its sequences of a step, such as
    8.2 s. Those of several classes add up; classes that are left out it does not run."""
    per_visit: FixedTime = 0.0
    """Each time that it has run sequences: to reduce gradients over its replicas, such as 0.3 s.
    Default: 0, or in the times."""
    per_step: FixedTime = 0.0
    """Once a step, where it holds the optimizer's state: to update the parameters and gather them,
    such as 80 ms. Default: 0, or in the times."""

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


class MeasuredSwitch(Section):
    """Time from one strategy to another; the way back takes as long unless it is listed."""

    leave: Name
    """Name of the strategy before."""
    enter: Name
    """Name of the strategy after."""
    parameters: FixedTime
    """Time to move the parameters, such as 1.8 s."""
    gradients: FixedTime
    """Time to move the gradients, such as 3.6 s."""


class LengthsFile(Section):
    """Sequences of many lengths in a step: one of histogram, file, log_normal.

    `hetplan lengths` decides which strategy runs which of them; other commands see a step of as
    many sequences, all of `workload.sequence_length`.
    """

    source: Text = NOT_STATED
    """Where the lengths come from."""
    histogram: list[LengthClass] | None = Field(None, min_length=1, max_length=MOST_CHOICES)
    """Classes of sequences by ascending length; counts are those of a step."""
    file: Name | None = None
    """Path of a .csv, .jsonl or .npy file of lengths in tokens, relative to this file's folder. In
    .csv a column, in .jsonl a field called length, tokens or num_tokens, or nothing but numbers; in
    .npy one dimension of integers."""
    log_normal: LogNormal | None = None
    """A distribution."""
    sequences: Batch | None = None
    """Sequences of a step, for log_normal and file. Default: all those of the file."""
    longest: Batch | None = None
    """Tokens at which longer sequences are cut off, for log_normal and file."""
    classes: int | None = Field(None, ge=1, le=MOST_CHOICES)
    """Most classes that lengths are put into, each rounded up to the longest of its class, for
    log_normal and file. Default: 32."""
    rows: Rows = "packed"
    """packed: rows hold several sequences, which attention keeps apart (needs flash attention).
    padded: one sequence each, padded to the upper end of its class."""
    strategies: list[MeasuredStrategy] | None = Field(None, min_length=1, max_length=MOST_CHOICES)
    """Measured strategies. Default: those of the degrees in search, by the model of cost."""
    switching: list[MeasuredSwitch] | None = Field(None, min_length=1, max_length=10**4)
    """Measured times between them, which several of them need."""


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


def read_classes(
    written: LengthsFile | None, place: Place, folder: Path
) -> tuple[LengthClass, ...]:
    """The classes as written, of a file in `folder`, or of a distribution; none without a section.

    Raises InstanceError for none or several of these, a file without them, and classes that are not
    ascending.
    """
    if written is None:
        return ()
    only_origin(written, place, "histogram", "file", "log_normal")
    number, sequences, longest = written.classes or CLASSES, written.sequences, written.longest
    if written.file is not None:
        counts: Counter[int] = Counter()
        for length, count in read_lengths(folder / written.file, place.at("file")).items():
            counts[min(length, longest or length)] += count
        return classes_of(counts, number, sequences)
    if (normal := written.log_normal) is not None:
        if sequences is None:
            raise place.at("sequences").error("missing", "sequences of a step, such as 512")
        if longest is None:
            allowed = "tokens at which longer sequences are cut off, such as 32768"
            raise place.at("longest").error("missing", allowed)
        if normal.median > longest:
            problem = f"{normal.median}, above longest {longest}"
            raise place.at("log_normal", "median").error(problem, f"at most {longest}")
        return log_normal_classes(normal.median, normal.sigma, longest, sequences, number)
    for field in ("sequences", "longest", "classes"):
        if (value := getattr(written, field)) is not None:
            allowed = "none; it is for log_normal and file"
            raise place.at(field).error(f"{value}, with a histogram", allowed)
    histogram = written.histogram or []
    for i, (before, after) in enumerate(pairwise(histogram), 1):
        if after.up_to <= before.up_to:
            problem = f"{after.up_to} after {before.up_to}"
            allowed = "classes by ascending length, each once"
            raise place.at("histogram", i, "up_to").error(problem, allowed)
    beyond = first_beyond((row.count for row in histogram), MOST_BATCH)
    if beyond is not None:
        problem = f"more than {MOST_BATCH} sequences up to this class"
        raise place.at("histogram", beyond, "count").error(problem, f"at most {MOST_BATCH} in all")
    return tuple(histogram)


def with_lengths(
    workload: WorkloadFile, place: Place, classes: Sequence[LengthClass]
) -> WorkloadFile:
    """The workload of a step of as many sequences, each as long as the longest; of none as it is.

    Raises InstanceError where it states another number of them, or fewer tokens.
    """
    if not classes:
        return workload
    longest, sequences = classes[-1].up_to, sum(row.count for row in classes)
    tokens = workload.sequence_length or ceil_div(longest, ROW_MULTIPLE) * ROW_MULTIPLE
    if tokens < longest:
        problem = f"{tokens}, below the {longest} tokens of the longest sequence"
        allowed = f"at least {longest}, or no such field"
        raise place.at("sequence_length").error(problem, allowed)
    if workload.global_batch not in (None, sequences):
        problem = f"{workload.global_batch}, where lengths has {sequences} sequences of a step"
        raise place.at("global_batch").error(problem, f"{sequences}, or no such field")
    return workload.but(sequence_length=tokens, global_batch=sequences)


def resolve_lengths(
    written: LengthsFile | None, place: Place, classes: tuple[LengthClass, ...], given: Given
) -> Lengths | None:
    """What a step holds. Raises InstanceError for what does not fit the cluster, or attention."""
    cluster, architecture, workload = given.cluster, given.architecture, given.workload
    if written is None:
        return None
    if cluster.has_joined_nodes:
        raise place.error("with joined nodes", "cluster.joined_nodes: 1")
    if written.rows == "packed" and not workload.flash_attention:
        problem = "packed rows without flash attention, which alone keeps their sequences apart"
        remedy = flash_remedy(cluster, workload.precision)
        raise place.at("rows").error(problem, f"padded, or {remedy}")
    if given.profile and not written.strategies:
        problem = "rows of many lengths, with a profile, whose layer times are of one"
        raise place.error(problem, "measured strategies here, or no profile")
    strategies, listed = written.strategies or [], place.at("strategies")
    uppers = [row.up_to for row in classes]
    places = [(strategy, listed.at(i)) for i, strategy in enumerate(strategies)]
    all_of(partial(_check_strategy, *at, given, uppers) for at in places)
    names = [strategy.title for strategy in strategies]
    for i, name in enumerate(names):
        if (first := names.index(name)) < i:
            problem = f"{name!r} is also the name of strategies[{first}]"
            raise listed.at(i, "name").error(problem, "every strategy its own name")
    return Lengths(
        source=written.source,
        classes=classes,
        rows=written.rows,
        architecture=architecture,
        strategies=tuple(strategies),
        switching=_switching(written.switching or [], place.at("switching"), names),
    )


def _check_strategy(
    written: MeasuredStrategy, place: Place, given: Given, uppers: list[int]
) -> None:
    """Of rows that are a sequence of the model, with the longest; or of classes that there are."""
    num_gpus, positions = given.cluster.num_gpus, given.architecture.learned_positions
    if (written.row_times is None) == (written.class_times is None):
        problem = "neither row_times nor class_times" if written.row_times is None else "both"
        raise place.error(problem, "exactly one of row_times, class_times")
    if (written.longest_row is None) != (written.row_times is None):
        problem = "missing" if written.longest_row is None else f"{written.longest_row}"
        allowed = "tokens of the longest row, with row_times; none with class_times"
        raise place.at("longest_row").error(problem, allowed)
    for tokens in written.row_times or {}:
        if positions is not None and tokens > positions:
            problem = f"a sequence of {tokens} tokens on {positions} learned positions"
            raise place.at("row_times", tokens).error(problem, f"1 to {positions}")
    for tokens in written.class_times or {}:
        if tokens not in uppers:
            problem, allowed = f"no class of up to {tokens} tokens", ", ".join(map(str, uppers))
            raise place.at("class_times", tokens).error(problem, allowed)
    if written.num_gpus > num_gpus:
        problem = f"{written.num_gpus} GPUs, of {num_gpus} in the cluster"
        raise place.error(problem, f"degrees whose product is at most {num_gpus}")


def _switching(
    written: list[MeasuredSwitch], place: Place, names: list[str]
) -> tuple[MeasuredSwitch, ...]:
    """Every ordered pair once; one that is not written takes as long as the way back."""
    if written and not names:
        allowed = "none, or measured strategies to go with them"
        raise place.error("times of switches without strategies", allowed)
    ways: dict[tuple[str, str], MeasuredSwitch] = {}
    for i, way in enumerate(written):
        for field in ("leave", "enter"):
            if getattr(way, field) not in names:
                raise place.at(i, field).unknown("strategy", getattr(way, field), names)
        if way.leave == way.enter:
            raise place.at(i, "enter").error(shown(way.enter), "another strategy than leave")
        if (way.leave, way.enter) in ways:
            raise place.at(i).error(f"{way.leave!r} to {way.enter!r} again", "every pair once")
        ways[way.leave, way.enter] = way
    switches = []
    for leave, enter in permutations(names, 2):
        either = ways.get((leave, enter)) or ways.get((enter, leave))
        if either is None:
            missing = f"no times from {leave!r} to {enter!r}, nor back"
            raise place.error(missing, "times for every pair of strategies")
        switches.append(either.but(leave=leave, enter=enter))
    return tuple(switches)
