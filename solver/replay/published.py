"""Throughput per number of nodes, recovery costs and failure times from a JSON file.

The format is that in which the inputs of Oobleck's evaluation are kept (Jang et al., SOSP 2023,
Table 2; the figures of its public simulator). Fields not named here are left alone.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import ConfigDict, Field

from formulations.instance.documents import Place, json_document, read_text
from formulations.instance.record import Record, shown
from formulations.instance.validation import validated
from solver.replay.policy import Checkpoints, Configuration, InFlight, Policy, Recovery
from solver.replay.trace import Trace, failures_trace

_NS_PER_MS = 1_000_000
_LEAST = 1e-6  # samples/s
_MOST_MS = 10**12
_MOST_NODES = re.compile(r"\b([1-9]\d{0,5})-i nodes")
_ByModel = dict[str, object]  # ms, or number of nodes -> ms
_Value = TypeVar("_Value")


class _Part(Record):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class VarunaCosts(_Part):
    """Restart and checkpoints: model -> ms, or model -> number of nodes -> ms."""

    restart_ms: _ByModel = Field(description="model -> pause after a failure, in ms")
    checkpoint_ms: _ByModel = Field(description="model -> time of a checkpoint, in ms")
    checkpoint_every_steps: int = Field(ge=1, le=10**9, description="steps between checkpoints")


class BambooCosts(_Part):
    """Rebalancing after a failure (model -> ms), the slower step before, the second failure."""

    rebalance_ms: _ByModel = Field(description="model -> pause after a failure, in ms")
    slowdown_percent: int = Field(
        ge=100, le=10**6, description="150: the rest of the step takes 1.5 x"
    )
    restart_ms: int = Field(ge=0, le=_MOST_MS, description="pause after a second failure, in ms")


class ThroughputFile(_Part):
    """The file; what no policy asked for needs may be missing."""

    throughput_by_nodes: dict[str, dict[str, list[float]]] = Field(
        description="policy -> model -> samples/s with most_nodes, one fewer, ...; 0: none"
    )
    most_nodes: int | None = Field(
        default=None, ge=1, le=10_000, description="nodes of the first entry"
    )
    nodes_for_index: str = Field(default="", description='the same, such as "with 30-i nodes"')
    samples_per_step: dict[str, Annotated[int, Field(ge=1, le=10**9)]] = Field(
        description="model -> global batch"
    )
    node_ready_ms: int = Field(default=0, ge=0, le=_MOST_MS)
    oobleck_reconfig_ms: _ByModel = Field(default_factory=dict)
    varuna: VarunaCosts | None = None
    bamboo: BambooCosts | None = None
    traces_removal_ms: dict[str, list[int]] = Field(default_factory=dict)


@dataclass(frozen=True)
class PublishedInputs:
    """The file's content, with positions for errors; its methods raise InstanceError."""

    file: ThroughputFile
    place: Place

    @property
    def most_nodes(self) -> int:
        """Nodes of the first throughput of every list."""
        match = _MOST_NODES.search(self.file.nodes_for_index)
        most_nodes = self.file.most_nodes or (int(match[1]) if match else None)
        if most_nodes is None:
            allowed = "number of nodes of the first throughput"
            raise self.place.at("most_nodes").error("missing", allowed)
        return most_nodes

    def trace(self, name: str, nodes: tuple[str, ...], seed: int = 0) -> Trace | None:
        """The file's failures of that name, as `failures_trace`; None if it has none such."""
        times_ms = self.file.traces_removal_ms.get(name)
        if times_ms is None:
            return None
        place = self.place.at("traces_removal_ms", name)
        if not 0 < len(times_ms) <= len(nodes):
            raise place.error(f"{len(times_ms)} failures", f"1 to {len(nodes)}, one per node")
        for i, time_ms in enumerate(times_ms):
            least = times_ms[i - 1] if i else 1
            if not least <= time_ms <= _MOST_MS:
                allowed = f"{least} to {_MOST_MS}: times are in order"
                raise place.at(i).error(shown(time_ms), allowed)
        return failures_trace(nodes, [time_ms * _NS_PER_MS for time_ms in times_ms], seed)

    def policy(self, name: str, model: str, in_flight: InFlight = "lost") -> Policy:
        """How `name` trains and recovers `model`; in_flight is for oobleck and varuna."""
        costs = {"oobleck": self._oobleck, "varuna": self._varuna, "bamboo": self._bamboo}
        pause_ns, recovery = costs[name](model, in_flight)
        samples = self._of_model(model, self.file.samples_per_step, "samples_per_step")
        step_ns = self._step_times_ns(name, model, samples)
        most_nodes = max(step_ns)

        def reconfigure(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
            count = min(len(ready), most_nodes)
            if count not in step_ns:
                return None
            return Configuration(ready, step_ns[count], pause_ns(count))

        return Policy(name, reconfigure, recovery, samples, (self.place.document.name,))

    def _oobleck(self, model: str, in_flight: InFlight) -> tuple[Callable[[int], int], Recovery]:
        pause_ns = self._times(model, self.file.oobleck_reconfig_ms, "oobleck_reconfig_ms")
        return pause_ns, Recovery(in_flight, None, self._ready_ns)

    def _varuna(self, model: str, in_flight: InFlight) -> tuple[Callable[[int], int], Recovery]:
        costs = self.file.varuna
        if costs is None:
            raise self.place.at("varuna").error("missing", "restart and checkpoint times")
        pause_ns = self._times(model, costs.restart_ms, "varuna", "restart_ms")
        time_ns = self._times(model, costs.checkpoint_ms, "varuna", "checkpoint_ms")
        checkpoints = Checkpoints(costs.checkpoint_every_steps, time_ns(self.most_nodes))
        return pause_ns, Recovery(in_flight, checkpoints, self._ready_ns)

    def _bamboo(self, model: str, _: InFlight) -> tuple[Callable[[int], int], Recovery]:
        costs = self.file.bamboo
        if costs is None:
            raise self.place.at("bamboo").error("missing", "rebalancing and restart times")
        pause_ns = self._times(model, costs.rebalance_ms, "bamboo", "rebalance_ms")
        fatal_ns = costs.restart_ms * _NS_PER_MS
        recovery = Recovery("slowed", None, self._ready_ns, costs.slowdown_percent, fatal_ns)
        return pause_ns, recovery

    @property
    def _ready_ns(self) -> int:
        return self.file.node_ready_ms * _NS_PER_MS

    def _step_times_ns(self, name: str, model: str, samples: int) -> dict[int, int]:
        """Step time by number of nodes, rounded up; without those that cannot train."""
        path = ("throughput_by_nodes", name)
        systems = self.file.throughput_by_nodes
        if name not in systems:
            raise self.place.at(path[0]).unknown("policy", name, systems)
        listed = self._of_model(model, systems[name], *path)
        place = self.place.at(*path, model)
        fits = all(per_s == 0 or _LEAST <= per_s <= 1 / _LEAST for per_s in listed)
        if not 0 < len(listed) <= self.most_nodes or not fits or max(listed) == 0:
            allowed = (
                f"1 to {self.most_nodes} numbers, not all 0, each of them 0 or from "
                f"{_LEAST:g} to {1 / _LEAST:g}"
            )
            raise place.error(shown(listed), allowed)
        return {
            self.most_nodes - i: math.ceil(samples / per_s * 1e9)
            for i, per_s in enumerate(listed)
            if per_s
        }

    def _of_model(self, model: str, values: Mapping[str, _Value], *path: str) -> _Value:
        if model not in values:
            raise self.place.at(*path).unknown("model", model, values)
        return values[model]

    def _times(self, model: str, values: _ByModel, *path: str) -> Callable[[int], int]:
        """Nanoseconds by number of nodes; between two listed numbers, the smaller one's."""
        value = self._of_model(model, values, *path)
        listed = value if isinstance(value, dict) and value else {"0": value}
        by_nodes = []
        for nodes, written in listed.items():
            time_ns = _nanoseconds(written)
            if time_ns is None or not str(nodes).isdecimal():
                found = f"{shown(nodes)}: {shown(written)}" if listed is value else shown(value)
                allowed = f"milliseconds from 0 to {_MOST_MS:g}, or numbers of nodes mapped to them"
                raise self.place.at(*path, model).error(found, allowed)
            by_nodes.append((int(nodes), time_ns))
        by_nodes.sort()

        def time_of(nodes: int) -> int:
            return next((ns for least, ns in reversed(by_nodes) if least <= nodes), by_nodes[0][1])

        return time_of


def _nanoseconds(milliseconds: object) -> int | None:
    """Rounded up; None for what is no number in the range."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    return math.ceil(milliseconds * _NS_PER_MS) if 0 <= milliseconds <= _MOST_MS else None


def read_throughput(path: Path) -> PublishedInputs:
    """The file at `path`. Raises InstanceError with file, line and column."""
    document = json_document(read_text(path, "a JSON file of throughputs"), str(path))
    return PublishedInputs(validated(ThroughputFile, document), Place(document))
