"""Measured steps from CSV files.

    tensor_parallel,data_parallel,pipeline_parallel,micro_batch,seconds,memory
    2,2,4,1,0.512,31.5 GiB

One line per step, measured on nodes like those of one group. Other columns, which an instance of
one choice need not have, are the fields of `StepRow`: also of a model of other sizes, or of more
nodes. Or a line per plan that ran, `plan,seconds,memory`, as `hetplan shortlist` writes them.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import log
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from formulations.errors import InstanceError, PlanError, all_of
from formulations.instance import Instance, NodeGroup
from formulations.instance.documents import (
    Document,
    Place,
    Position,
    csv_fields,
    parse_document,
    read_text,
)
from formulations.instance.load import parse_instance
from formulations.instance.machines import MOST_FACTOR
from formulations.instance.profile import PeakMemory
from formulations.instance.record import Batch, Count, Name, Record
from formulations.instance.resolve_workload import catalogue_entry
from formulations.instance.search import ScheduleName, ZeroStage
from formulations.instance.validation import validated
from formulations.instance.workload import Recompute
from formulations.plan import Plan
from solver.document import PlanDocument
from solver.evaluate.launched import Launched, run_of
from solver.evaluate.run_plan import planned
from solver.files import fields_of
from solver.measure.calibration import NOISE, SEVERAL_NOISE, MeasuredStep
from solver.plan_figures import peak_flop_per_s, plan_of

#: Two measurements of one run are further apart than so many deviations of one in 500 cases.
SCATTER = 4.4
ALLOWED = "a CSV file with the columns "
StepSeconds = Annotated[float, Field(gt=0, le=1e6)]


class StepRow(Record):
    """One line: what ran, and how long a step took. Defaults are the instance's first choice."""

    tp: Count = Field(validation_alias="tensor_parallel")  #: GPUs per tensor-parallel group
    dp: Count = Field(validation_alias="data_parallel")  #: replicas
    pp: Count = Field(validation_alias="pipeline_parallel")  #: stages
    micro_batch: Count  #: sequences
    seconds: StepSeconds
    memory: PeakMemory | None = None  #: peak on the fullest GPU
    group: Name | None = None  #: node group that it ran on
    global_batch: Batch | None = None  #: sequences per step
    vpp: Count = Field(1, validation_alias="virtual_pipeline")  #: chunks of layers per GPU
    microbatch_group: Count | None = None  #: that a chunk takes in turn; else pp
    schedule: ScheduleName | None = None
    split: Name | None = None  #: blocks of each stage, such as 9/7/5/3; else evenly
    recompute: Recompute | None = None  #: of all blocks
    zero: ZeroStage | None = None  #: what replicas split
    model: Name | None = None  #: name of the workload
    hidden_size: Count | None = None
    layers: Count | None = None  #: blocks of the model
    heads: Count | None = None  #: its attention heads
    sequence_length: Batch | None = None
    gpus_per_node: Count | None = None

    @property
    def gpus(self) -> int:
        """All that the step ran on."""
        return self.tp * self.dp * self.pp


class PlanRow(Record):
    """One line of a plan that ran, as `shortlist` writes it."""

    plan: Name  #: plan file, beside the table
    seconds: StepSeconds
    memory: PeakMemory | None = None  #: peak on the fullest GPU


_COLUMNS = {
    name: str(field.validation_alias or name) for name, field in StepRow.model_fields.items()
}


#: The instance with other sizes of its model, by name of the size.
Resized = Callable[[Mapping[str, int]], Instance]


def resized(text: str, name: str, folder: Path, sizes: Mapping[str, int]) -> Instance:
    """From an instance file's text; its heads keep their width and its feed-forward its share.

    Raises InstanceError for what such a model cannot have, and for one of a config.json.
    """
    written: Any = parse_document(text, name).value
    workload = dict(written["workload"])
    own = workload.get("sizes")
    if "catalogue" in workload:
        entry = catalogue_entry(workload.pop("catalogue"), name)
        own = entry.sizes.model_dump(exclude_unset=True)
        workload = {"global_batch": entry.global_batch, **workload}
    if own is None:
        raise InstanceError(name, "a model of a config.json", "workload.sizes or .catalogue")
    wider = sizes["hidden_size"] / own["hidden_size"]
    scaled = {"heads": max(1, round(own["heads"] * wider))}
    if own.get("ffn_size"):
        scaled["ffn_size"] = round(own["ffn_size"] * wider)
    named = {field: sizes[field] for field in ("hidden_size", "layers", "heads") if field in sizes}
    tokens = sizes["sequence_length"]
    if own.get("learned_positions"):
        scaled["learned_positions"] = max(tokens, own["learned_positions"])
    workload |= {"sizes": {**own, **scaled, **named}, "sequence_length": tokens}
    return parse_instance(json.dumps({**written, "workload": workload}), name, folder)


def read_steps(
    path: Path, instance: Instance, other_sizes: Resized | None = None
) -> list[MeasuredStep]:
    """The steps of a file.

    other_sizes: makes the instance of rows of other models; without it they are refused.
    Raises InstanceError for all lines that do not fit the format, the model or the machines, and
    for the first that contradicts an earlier one.
    """
    fields = StepRow.model_fields.items()
    needed = [_COLUMNS[name] for name, field in fields if field.is_required()]
    allowed = f"{ALLOWED}{','.join(needed)}, or plan,seconds"
    rows = list(csv_fields(read_text(path, allowed)))
    if len(rows) < 2:
        raise InstanceError(f"{path}:1:1", "no measured step", allowed + " and a line per step")
    names = [name for _, name in rows[0][1]]
    lines = all_of(partial(_document, path, names, *row) for row in rows[1:])
    places = [Place(line) for line in lines]
    steps = all_of(partial(_step, place, instance, other_sizes) for place in places)
    # The same run twice, further apart than such steps scatter
    runs: dict[str, tuple[MeasuredStep, int]] = {}
    for (line, _), place, step in zip(rows[1:], places, steps, strict=True):
        run = f"{step.plan!r} {step.instance.workload!r} {step.instance.cluster!r}"
        first, at = runs.setdefault(run, (step, line))
        scatter = SCATTER * (SEVERAL_NOISE if step.several else NOISE)
        if abs(log(step.measured_s / first.measured_s)) > scatter:
            wrong = (
                f"{step.measured_s:g} s, and {first.measured_s:g} s in line {at} of the same run"
            )
            raise place.at("seconds").error(wrong, f"within {100 * scatter:.2g} % of each other")
    return steps


def _document(path: Path, names: list[str], line: int, fields: list[tuple[int, str]]) -> Document:
    """One line under the names of the first; texts that are numbers are numbers."""
    if len(fields) != len(names):
        wrong = f"{len(fields)} fields"
        raise InstanceError(f"{path}:{line}:1", wrong, f"{len(names)}: {','.join(names)}")
    positions, values = [Position((), f"{line}:1")], dict[str, int | float | str]()
    for name, (column, text) in zip(names, fields, strict=True):
        if not text:
            continue
        positions.append(Position((name,), f"{line}:{column}"))
        values[name] = text
        for number in (float, int):  # the last that can read it
            with suppress(ValueError):
                values[name] = number(text)
    return Document(str(path), values, lambda: positions)


def _step(place: Place, instance: Instance, other_sizes: Resized | None) -> MeasuredStep:
    line = place.document
    if line.has(("plan",)):
        ran = validated(PlanRow, line)
        plan = _plan(Path(line.name).parent / ran.plan, place, instance)
        return _possible(MeasuredStep(instance, plan, ran.seconds, ran.memory), place)
    row = validated(StepRow, line)
    instance = _of_model(row, place, instance, other_sizes)
    group, gpus = _group(row, place, instance), row.gpus
    # The instance on as many GPUs of one group as the row has, with its batch
    size = min(gpus, row.gpus_per_node or group.gpus_per_node)
    nodes = {"gpus_per_node": size, "nodes": gpus // size, "zone": None}
    cluster = instance.cluster.with_groups([group.model_copy(update=nodes)])
    batch = row.global_batch or instance.workload.global_batch
    alone = instance.with_batch(batch).model_copy(update={"cluster": cluster}).on((1,))
    plan = planned(alone, _run(row, place, alone), (0,) * (gpus // size)).plan
    return _possible(MeasuredStep(alone, plan, row.seconds, row.memory), place)


def _run(row: StepRow, place: Place, instance: Instance) -> Launched:
    """What ran: as stated, else the first that the instance names."""
    search, where = instance.search, place.document.where
    chosen: dict[str, object] = {"recompute": search.recompute[0], "zero": search.zero[0]}
    if row.vpp == 1:
        plain = (name for name in search.schedule if name != "interleaved")
        chosen["schedule"] = next(plain, "1f1b")
    stated = {*Launched.__dataclass_fields__, "split"}
    chosen |= row.model_dump(include=stated, exclude_none=True)
    places = {name: where((column,)) for name, column in _COLUMNS.items()}
    return run_of(chosen, instance, where(()), places)


def _plan(path: Path, place: Place, instance: Instance) -> Plan:
    """The plan of a file, which must be one of the instance."""
    try:
        document = PlanDocument.read(path)
        plan = plan_of(document)
    except (InstanceError, PlanError) as error:
        raise place.at("plan").error(f"{path.name}: {error.found}", error.allowed) from None
    if document.instance != instance:
        raise place.at("plan").error(
            f"{path.name}, of another instance", f"plans of {instance.name}"
        )
    return plan


def _possible(step: MeasuredStep, place: Place) -> MeasuredStep:
    """The step, no faster than its GPUs can be, and not far too slow."""
    workload, config, seconds = step.instance.workload, step.plan.config, step.measured_s
    peak = peak_flop_per_s(step.instance, config)
    shortest_s = workload.training_flops * workload.global_batch / peak
    longest_s = MOST_FACTOR * step.predicted_s()
    if seconds < shortest_s:
        gpus = " and ".join(dict.fromkeys(shape.gpu for shape in step.shapes))
        wrong = f"{seconds:g} s, above the {workload.precision} peak of {gpus}"
        allowed = f"at least {shortest_s:.3g} s for these sequences"
        raise place.at("seconds").error(wrong, allowed)
    if seconds > longest_s:
        wrong = f"{seconds:g} s, more than {MOST_FACTOR:g} times the modelled step"
        raise place.at("seconds").error(wrong, f"seconds, here at most {longest_s:.3g}")
    return step


def _of_model(
    row: StepRow, place: Place, instance: Instance, other_sizes: Resized | None
) -> Instance:
    """The instance, or it with the row's sizes where they are others."""
    workload = instance.workload
    planned = fields_of(workload, "hidden_size", "sequence_length", layers="num_blocks")
    sizes = {name: getattr(row, name) or value for name, value in planned.items()}
    alike = sizes == planned
    if row.model not in (None, workload.name) and (alike or not row.hidden_size or not row.layers):
        allowed = f"{workload.name}, or another with its hidden_size and layers in columns"
        raise place.at("model").error(f"{row.model}, of another model", allowed)
    if alike:
        return instance
    changed = next(name for name, value in planned.items() if sizes[name] != value)
    if other_sizes is None or instance.profile is not None:
        allowed = f"{planned[changed]}: steps of {workload.name}, as the instance"
        raise place.at(changed).error(f"{sizes[changed]}, of another model", allowed)
    try:
        return other_sizes({**sizes, **({"heads": row.heads} if row.heads else {})})
    except InstanceError as error:
        reason = f"{sizes[changed]}, of a model that cannot be: {error.found}"
        raise place.at(changed).error(reason, error.allowed) from None


def _group(row: StepRow, place: Place, instance: Instance) -> NodeGroup:
    """The node group that a row was measured on, which has the GPUs."""
    groups = {group.name: group for group in instance.cluster.groups}
    if row.group is None and len(groups) > 1:
        raise place.at("group").error("missing", f"{', '.join(groups)}: whose GPUs ran the step")
    if row.group is not None and row.group not in groups:
        raise place.at("group").unknown("node group", row.group, groups)
    group = groups[row.group or next(iter(groups))]
    if group.machines > 1:
        raise place.error("degrees on joined nodes", "plan: the file of a plan that ran")
    size = row.gpus_per_node or group.gpus_per_node
    if row.gpus > size and row.gpus % size:
        allowed = f"at most {size}, or whole nodes of {size}"
        raise place.error(f"{row.gpus} GPUs in all", allowed)
    return group
