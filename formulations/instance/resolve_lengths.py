"""From the written section `lengths` to what a step holds; what the workload takes from it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path

from formulations.errors import all_of
from formulations.instance.cluster import Cluster
from formulations.instance.documents import Place
from formulations.instance.flash import flash_remedy
from formulations.instance.length_classes import classes_of, log_normal_classes, read_lengths
from formulations.instance.lengths import (
    CLASSES,
    LengthClass,
    Lengths,
    LengthsFile,
    MeasuredStrategy,
    MeasuredSwitch,
)
from formulations.instance.record import MOST_BATCH, first_beyond, shown
from formulations.instance.resolve_workload import WorkloadFile
from formulations.instance.transformer import Architecture
from formulations.instance.workload import Workload
from formulations.units import ceil_div

_ORIGINS = ("histogram", "file", "log_normal")
#: A step's sequences, unless the workload says how long they are, are rounded up to a multiple of
#: it: GPUs that share a sequence split it evenly.
ROW_MULTIPLE = 128


@dataclass(frozen=True)
class WrittenLengths:
    """The section and the classes of lengths that it means."""

    file: LengthsFile
    place: Place
    classes: tuple[LengthClass, ...]


def read_classes(written: LengthsFile | None, place: Place, folder: Path) -> WrittenLengths | None:
    """The classes as written, of a file in `folder`, or of a distribution.

    Raises InstanceError for none or several of these, a file without them, and classes that are not
    ascending.
    """
    if written is None:
        return None
    given = [name for name in _ORIGINS if getattr(written, name) is not None]
    if len(given) != 1:
        problem = " and ".join(given) or f"none of {', '.join(_ORIGINS)}"
        raise place.error(problem, f"exactly one of {', '.join(_ORIGINS)}")
    number, sequences, longest = written.classes or CLASSES, written.sequences, written.longest
    if written.file is not None:
        counts: Counter[int] = Counter()
        for length, count in read_lengths(folder / written.file, place.at("file")).items():
            counts[min(length, longest or length)] += count
        return WrittenLengths(written, place, classes_of(counts, number, sequences))
    if (normal := written.log_normal) is not None:
        if sequences is None:
            raise place.at("sequences").error("missing", "sequences of a step, such as 512")
        if longest is None:
            allowed = "tokens at which longer sequences are cut off, such as 32768"
            raise place.at("longest").error("missing", allowed)
        if normal.median > longest:
            problem = f"{normal.median}, above longest {longest}"
            raise place.at("log_normal", "median").error(problem, f"at most {longest}")
        classes = log_normal_classes(normal.median, normal.sigma, longest, sequences, number)
        return WrittenLengths(written, place, classes)
    for field in ("sequences", "longest", "classes"):
        if (value := getattr(written, field)) is not None:
            allowed = "none; it is for log_normal and file"
            raise place.at(field).error(f"{value}, with a histogram", allowed)
    histogram = written.histogram or []
    for i, (before, after) in enumerate(pairwise(histogram), 1):
        if after.up_to <= before.up_to:
            allowed = "classes by ascending length, each once"
            problem = f"{after.up_to} after {before.up_to}"
            raise place.at("histogram", i, "up_to").error(problem, allowed)
    beyond = first_beyond((row.count for row in histogram), MOST_BATCH)
    if beyond is not None:
        problem = f"more than {MOST_BATCH} sequences up to this class"
        raise place.at("histogram", beyond, "count").error(problem, f"at most {MOST_BATCH} in all")
    return WrittenLengths(written, place, tuple(histogram))


def with_lengths(
    workload: WorkloadFile, place: Place, lengths: WrittenLengths | None
) -> WorkloadFile:
    """The workload of a step of as many sequences, each as long as the longest.

    Raises InstanceError where it states another number of them, or fewer tokens.
    """
    if lengths is None:
        return workload
    longest = lengths.classes[-1].up_to
    sequences = sum(row.count for row in lengths.classes)
    if workload.sequence_length is not None and workload.sequence_length < longest:
        problem = f"{workload.sequence_length}, below the {longest} tokens of the longest sequence"
        allowed = f"at least {longest}, or no such field"
        raise place.at("sequence_length").error(problem, allowed)
    if workload.global_batch not in (None, sequences):
        problem = f"{workload.global_batch}, where lengths has {sequences} sequences of a step"
        raise place.at("global_batch").error(problem, f"{sequences}, or no such field")
    rounded = ceil_div(longest, ROW_MULTIPLE) * ROW_MULTIPLE
    tokens = workload.sequence_length or rounded
    return workload.but(sequence_length=tokens, global_batch=sequences)


def resolve_lengths(
    lengths: WrittenLengths | None,
    cluster: Cluster,
    architecture: Architecture,
    workload: Workload,
    profile: bool,
) -> Lengths | None:
    """What a step holds. Raises InstanceError for what does not fit the cluster, or attention."""
    if lengths is None:
        return None
    written, place = lengths.file, lengths.place
    if written.rows == "packed" and not workload.flash_attention:
        problem = "packed rows without flash attention, which alone keeps their sequences apart"
        remedy = flash_remedy(cluster, workload.precision)
        raise place.at("rows").error(problem, f"padded, or {remedy}")
    if profile and not written.strategies:
        problem = "rows of many lengths, with a profile, whose layer times are of one"
        raise place.error(problem, "measured strategies here, or no profile")
    strategies = written.strategies or []
    num_gpus = sum(group.nodes * group.gpus_per_node for group in cluster.groups)
    positions, uppers = architecture.learned_positions, [row.up_to for row in lengths.classes]
    all_of(
        [
            partial(_check_strategy, each, place.at("strategies", i), num_gpus, positions, uppers)
            for i, each in enumerate(strategies)
        ]
    )
    names = [strategy.title for strategy in strategies]
    for i, name in enumerate(names):
        if (first := names.index(name)) < i:
            problem = f"{name!r} is also the name of strategies[{first}]"
            raise place.at("strategies", i, "name").error(problem, "every strategy its own name")
    return Lengths(
        source=written.source,
        classes=lengths.classes,
        rows=written.rows,
        architecture=architecture,
        strategies=tuple(strategies),
        switching=_switching(written.switching or [], place.at("switching"), names),
    )


def _check_strategy(
    written: MeasuredStrategy,
    place: Place,
    num_gpus: int,
    positions: int | None,
    uppers: Sequence[int],
) -> None:
    """Of rows that are a sequence of the model, with the longest; or of classes that there are."""
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
            raise place.at("class_times", tokens).error(
                f"no class of up to {tokens} tokens", ", ".join(map(str, uppers))
            )
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
