"""Measured layer times, what to do between and beyond their sizes, corrections by measured steps.

Kernels of a layer take their sizes from the model's width, the tensor-parallel degree and the
micro-batch; the width is the instance's. Corrections multiply the times of a layer kind on a GPU
type at a degree and micro-batch size, with their tensor-parallel traffic, by one factor.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, fsum, log
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field, Tag

from formulations.instance.cluster import Cluster
from formulations.instance.documents import Place
from formulations.instance.machines import Factor
from formulations.instance.record import (
    LIST,
    NUMBER,
    NUMBER_OR_LIST,
    Batch,
    Count,
    Fraction,
    Name,
    Quantity,
    Record,
    Section,
    Text,
)
from formulations.instance.workload import Precision

PeakMemory = Annotated[float, Quantity("size", "0", "10 TiB", "1.5 GiB")]
Milliseconds = Annotated[float, Field(ge=1e-6, le=1e7)]  # a nanosecond at least
Times = Annotated[
    Annotated[Milliseconds, Tag(NUMBER)]
    | Annotated[list[Milliseconds], Field(min_length=2, max_length=3), Tag(LIST)],
    NUMBER_OR_LIST,
]


class ProfileFile(Section):
    """Measured layer times. They replace the analytic model, all of it by default."""

    source: Text
    """Where the measurements come from."""
    precision: Precision | None = None
    """What they were measured in; of another one they say nothing."""
    hidden_size: Count | None = None
    """Width of the model that they are of; of others they say nothing."""
    sequence_length: Batch | None = None
    """Tokens per sequence; of other lengths they say nothing."""
    includes_tensor_parallel_traffic: bool
    """Do the times contain the all-reduces among the tp GPUs?"""
    sequence_parallel: bool = False
    """Was it measured with sequence parallelism?"""
    flash_attention: bool = False
    """Was it measured with flash attention?"""
    backward_over_forward: float | None = Field(None, ge=1e-6, le=100)
    """Backward time as a multiple of the forward time, where only the latter was measured."""
    missing_times: Literal["refuse", "analytic"] = "refuse"
    """What if there is no time of a layer kind on a GPU at a degree to choose from? analytic: the
    analytic model's, which was not measured."""
    hardware: Text | None = None
    """What they were measured on."""
    versions: Text | None = None
    """Of the software they are of."""
    peak_memory: dict[Name, dict[Name, dict[Count, dict[Count, PeakMemory]]]] | None = None
    """Layer kind -> GPU name -> tp -> micro-batch size -> peak memory of one layer, such as 1.5
    GiB. For people: plans take their memory from the memory model."""
    times_ms: dict[Name, dict[Name, dict[Count, dict[Count, Times]]]] = Field(min_length=1)
    """Layer kind -> GPU name -> tp -> micro-batch size -> forward milliseconds, or [forward,
    backward], or [forward, backward, of that for weight gradients]."""


Origin = Literal["measured", "interpolated", "scaled"]
MeasuredSeconds = Annotated[float, Field(gt=0, le=1e6)]


class ProfileEntry(Record):
    """Seconds of one layer kind on one GPU of a group of tp."""

    kind: Name
    gpu: Name  #: GpuType.name
    tp: Count
    micro_batch: Count
    forward_s: MeasuredSeconds
    backward_s: MeasuredSeconds
    weight_s: MeasuredSeconds | None = None  #: of the backward, for weight gradients, if measured


class LayerSeconds(NamedTuple):
    """One layer and micro-batch; of the backward pass those for weight gradients, if measured."""

    forward: float
    backward: float
    weight: float | None


class Profile(Record):
    """Measured times; they replace the analytic compute model for the whole instance."""

    source: Text
    includes_tensor_parallel_traffic: bool
    completed: bool = False  #: by the analytic model, where curves are missing
    entries: tuple[ProfileEntry, ...] = Field(min_length=1)

    def samples(self, kind: str, gpu: str, tp: int) -> list[ProfileEntry]:
        """Entries of one curve, by micro-batch size; empty where nothing was measured."""
        return self._curves.get((kind, gpu, tp), [])

    def has_time(self, kind: str, gpu: str, tp: int) -> bool:
        """Whether there is a time for this curve, by measurement or by the analytic model."""
        return self.completed or bool(self.samples(kind, gpu, tp))

    def measures(self, gpu: str) -> bool:
        """Whether there is any time on this GPU."""
        return any(entry.gpu == gpu for entry in self.entries)

    @cached_property
    def _curves(self) -> dict[tuple[str, str, int], list[ProfileEntry]]:
        curves: dict[tuple[str, str, int], list[ProfileEntry]] = {}
        for entry in sorted(self.entries, key=lambda entry: entry.micro_batch):
            curves.setdefault((entry.kind, entry.gpu, entry.tp), []).append(entry)
        return curves

    def time_s(self, kind: str, gpu: str, tp: int, b: int) -> tuple[LayerSeconds, Origin]:
        """Seconds of the passes and their origin at micro-batch size b.

        Between two measured sizes: linear. Outside: in proportion to the nearest size.
        Raises KeyError where the curve is missing.
        """
        curve = self.samples(kind, gpu, tp)
        if not curve:
            raise KeyError(f"{kind} on {gpu} at tp {tp}")
        below = [entry for entry in curve if entry.micro_batch <= b]
        above = [entry for entry in curve if entry.micro_batch >= b]
        low, high = (below or above)[-1 if below else 0], (above or below)[0 if above else -1]
        origin: Origin = "interpolated"
        if low is high:  # b itself was measured, or all sizes are on one side of it
            share, ratio = 0.0, b / low.micro_batch
            origin = "measured" if low.micro_batch == b else "scaled"
        else:
            share, ratio = (b - low.micro_batch) / (high.micro_batch - low.micro_batch), 1.0

        def mix(first_s: float, second_s: float) -> float:
            return ratio * (first_s + share * (second_s - first_s))

        weights = low.weight_s, high.weight_s
        seconds = LayerSeconds(
            mix(low.forward_s, high.forward_s),
            mix(low.backward_s, high.backward_s),
            None if None in weights else mix(low.weight_s or 0.0, high.weight_s or 0.0),
        )
        return seconds, origin


def leaves(table: Mapping[Any, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Keys and value of every entry of a table of tables, in order."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from (((key, *path), leaf) for path, leaf in leaves(value))
        else:
            yield (key,), value


@dataclass(frozen=True)
class WrittenProfile:
    """Layer times and where they stand: in the instance file or in one of their own."""

    file: ProfileFile
    place: Place


def resolve_profile(written: WrittenProfile, kinds: list[str]) -> Profile:
    """The profile in seconds.

    Raises InstanceError for a kind that is not one of the workload's `kinds`, for a forward time
    alone where `backward_over_forward` is not given, and for weight gradients above the backward.
    """
    file, entries = written.file, []
    for (kind, gpu, tp, b), times in leaves(file.times_ms):
        place = written.place.at("times_ms", kind)
        if kind not in kinds:
            raise place.unknown("layer kind", kind, kinds)
        place = place.at(gpu, tp, b)
        if not isinstance(times, list):
            if file.backward_over_forward is None:
                allowed = "[forward, backward] in ms, or also the field backward_over_forward"
                raise place.error(f"{times} alone", allowed)
            times = [times, times * file.backward_over_forward]
        if len(times) > 2 and times[2] > times[1]:
            problem = f"{times[2]} ms of weight gradients"
            raise place.error(problem, f"at most {times[1]}, the backward")
        forward_s, backward_s, weight_s = [*(1e-3 * ms for ms in times), None][:3]
        passes = {"forward_s": forward_s, "backward_s": backward_s, "weight_s": weight_s}
        entries.append(ProfileEntry(kind=kind, gpu=gpu, tp=tp, micro_batch=b, **passes))
    return Profile(
        source=file.source,
        includes_tensor_parallel_traffic=file.includes_tensor_parallel_traffic,
        completed=file.missing_times == "analytic",
        entries=tuple(entries),
    )


def covered_degrees(
    profile: Profile, kinds: list[str], cluster: Cluster, degrees: Iterable[int]
) -> list[int]:
    """Those tensor-parallel degrees for which no curve is missing."""
    return [tp for tp in degrees if not any(missing_times(profile, kinds, cluster, tp))]


def missing_times(
    profile: Profile, kinds: list[str], cluster: Cluster, tp: int
) -> Iterator[tuple[str, str]]:
    """Kinds and GPUs without a time, on the nodes that groups of tp GPUs fill exactly."""
    gpus = [group.gpu.name for group in cluster.groups if group.gpus_per_node % tp == 0]
    return ((kind, gpu) for kind in kinds for gpu in gpus if not profile.has_time(kind, gpu, tp))


MeanError = Annotated[float, Field(ge=0, le=100)]
Key = TypeVar("Key")
Entry = TypeVar("Entry")
Table = Annotated[dict[Key, Entry], Field(min_length=1)]


class Calibration(Section):
    """Corrections of layer times by measured steps; `hetplan calibrate` writes them."""

    source: Text
    """The measured steps."""
    expected_error: MeanError | None = None
    """Mean error of measured steps, each predicted by the others, with a factor for their GPU,
    degree and micro-batch size among them."""
    expected_error_elsewhere: MeanError | None = None
    """The same without one."""
    memory_headroom: Fraction | None = None
    """Share of the memory to leave free at least: measured peaks were above the memory model's by
    as much."""
    network: Factor | None = None
    """What passes between nodes takes so many times as long."""
    factors: Table[Name, Table[Name, Table[Count, Table[Count, Factor]]]]
    """Layer kind -> GPU name -> tp -> micro-batch size -> what the layer's times are multiplied by,
    tensor-parallel traffic included. Where there is none: the mean of a kind on a GPU."""

    def factor(self, kind: str, gpu: str, tp: int, micro_batch: int) -> float | None:
        """Of a kind at a kernel shape; else its geometric mean on this GPU type, if it has any."""
        stated = self.factors.get(kind, {}).get(gpu, {}).get(tp, {}).get(micro_batch)
        return stated or self._means.get((kind, gpu))

    def was_measured(self, gpu: str, tp: int, micro_batch: int) -> bool:
        """Whether a kernel shape has factors of its own."""
        kinds = self.factors.values()
        return any(micro_batch in gpus.get(gpu, {}).get(tp, {}) for gpus in kinds)

    @cached_property
    def _means(self) -> dict[tuple[str, str], float]:
        logs: dict[tuple[str, str], list[float]] = {}
        for (kind, gpu, *_), factor in leaves(self.factors):
            logs.setdefault((kind, gpu), []).append(log(factor))
        return {key: exp(fsum(values) / len(values)) for key, values in logs.items()}


def check_calibration(
    calibration: Calibration | None, place: Place, kinds: Sequence[str], cluster: Cluster
) -> None:
    """Raises InstanceError for factors of another layer kind or GPU type."""
    gpu_names = list(dict.fromkeys(group.gpu.name for group in cluster.groups))
    for kind, gpus in calibration.factors.items() if calibration else ():
        at = place.at("factors", kind)
        if kind not in kinds:
            raise at.unknown("layer kind", kind, kinds)
        for gpu in gpus:
            if gpu not in gpu_names:
                raise at.at(gpu).unknown("GPU", gpu, gpu_names)
