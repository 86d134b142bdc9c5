"""Files of single-replica pipelines, in the format of the reference's splits/optimal.json.

    {"note": ..., "cases": [{"name", "micro_batches", "layer_forward": [L], "layer_backward": [L],
     "stage_slowness": [p], "send_forward": [p - 1], "send_backward": [p - 1],
     "optimal_step_time" (optional), "proved_by" (optional), "schedule" (optional: "1f1b"),
     "blocking_sends" (optional: false)}]}

Layer l takes its time * stage_slowness[k] on stage k. send_forward[k] is the transfer from stage k
to k + 1, send_backward[k] the one back. All are integers of one unit. A split gives every stage at
least one layer; its step ends with the last backward.
"""

import json
import logging
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from formulations.errors import InstanceError
from formulations.instance.search import ScheduleName
from solver.graph.problem import Array

Count = Annotated[int, Field(ge=1, strict=True)]
Time = Annotated[int, Field(ge=0, strict=True)]

log = logging.getLogger(__name__)

#: Step times above this could overflow sums of path lengths.
LONGEST = 1 << 52


class Pipeline(BaseModel):
    """One case of a file."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    micro_batches: Count
    layer_forward: Annotated[tuple[Time, ...], Field(min_length=1)]
    layer_backward: tuple[Time, ...]
    stage_slowness: Annotated[tuple[Time, ...], Field(min_length=1)]
    send_forward: tuple[Time, ...]
    send_backward: tuple[Time, ...]
    optimal_step_time: Time | None = None
    proved_by: str | None = None
    schedule: ScheduleName = "1f1b"
    blocking_sends: bool = False

    @model_validator(mode="after")
    def _sizes_match(self) -> "Pipeline":
        layers, stages = len(self.layer_forward), len(self.stage_slowness)
        lengths = {
            "layer_backward": layers,
            "send_forward": stages - 1,
            "send_backward": stages - 1,
        }
        for field, length in lengths.items():
            if len(getattr(self, field)) != length:
                found = len(getattr(self, field))
                raise ValueError(f"{field} has {found} entries, {length} are needed")
        if stages > layers:
            raise ValueError(f"{stages} stages cannot each have one of {layers} layers")
        if self.longest > LONGEST:
            raise ValueError(f"a step may take {self.longest}, more than {LONGEST}")
        return self

    @property
    def longest(self) -> int:
        """No split takes longer: every operation and transfer after the other."""
        work = sum(self.layer_forward) + sum(self.layer_backward)
        sends = sum(self.send_forward) + sum(self.send_backward)
        return self.micro_batches * (work * max(self.stage_slowness) + sends)

    def _on_stages(self, layers: tuple[int, ...]) -> Array:
        return np.outer(np.array(self.stage_slowness), np.array(layers)).astype(np.int64)

    @cached_property
    def forward(self) -> Array:
        """[p, L] forward time of a layer on a stage."""
        return self._on_stages(self.layer_forward)

    @cached_property
    def backward(self) -> Array:
        """[p, L] backward time of a layer on a stage."""
        return self._on_stages(self.layer_backward)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True)

    cases: tuple[Pipeline, ...]


def _place(path: Path, content: object, location: tuple[int | str, ...]) -> str:
    """File, case by number and name, and field."""
    words = [str(path)]
    if len(location) >= 2:
        words.append(f"cases[{location[1]}]")
        case: Any = content["cases"][location[1]] if isinstance(content, dict) else None
        if isinstance(case, dict) and "name" in case:
            words.append(f"({case['name']})")
        words += [".".join(str(part) for part in location[2:])] if location[2:] else []
    else:
        words += [str(part) for part in location]
    return " ".join(words)


def read_pipelines(path: Path) -> tuple[Pipeline, ...]:
    """All cases of a file, in its order.

    Fields that the format does not have are named in a warning and not used. Raises InstanceError
    for a file that cannot be read or has not this format.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cases = _File.model_validate(content).cases
    except OSError as error:
        raise InstanceError(str(path), f"{error.strerror}", "a readable file") from None
    except ValidationError as error:
        first = error.errors()[0]
        found = first["msg"].removeprefix("Value error, ")
        raise InstanceError(
            _place(path, content, first["loc"]), found, "see bench/pipelines.py"
        ) from None
    except ValueError as error:
        raise InstanceError(str(path), f"not JSON: {error}", "see bench/pipelines.py") from None
    for field in sorted({field for case in cases for field in case.model_extra or ()}):
        log.warning("%s: field %r of cases is not part of the format and not used", path, field)
    return cases
