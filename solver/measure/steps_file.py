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
from typing import Any

from pydantic import Field

from formulations.errors import InstanceError, PlanError, all_of
from formulations.instance import Instance, NodeGroup
from formulations.instance.catalogue import catalogue_entry
from formulations.instance.documents import (
    Document,
    Mark,
    Node,
    Part,
    Place,
    csv_fields,
    parse_document,
    read_text,
)
from formulations.instance.load import parse_instance
from formulations.instance.machines import MOST_FACTOR
from formulations.instance.profile import PeakMemory
from formulations.instance.record import Batch, Count, Name, Record
from formulations.instance.search import ScheduleName, ZeroStage
from formulations.instance.validation import validated
from formulations.instance.workload import Recompute
from formulations.plan import GRADIENTS_SPLIT, Degrees, Plan
from formulations.schedules.interleaved import sizes_of_groups
from solver.document import PlanDocument
from solver.measure.calibration import NOISE, SEVERAL_NOISE, MeasuredStep, megatron_plan
from solver.plan_figures import peak_flop_per_s, plan_of

#: Two measurements of one run are further apart than so many deviations of one in 500 cases.
SCATTER = 4.4
ALLOWED = "a CSV file with the columns "


class StepRow(Record):
    """One line: what ran, and how long a step took. Defaults are the instance's first choice."""

    tensor_parallel: Count = Field(description="GPUs per tensor-parallel group.")
    data_parallel: Count = Field(description="Replicas.")
    pipeline_parallel: Count = Field(description="Stages.")
    micro_batch: Count = Field(description="Sequences per micro-batch.")
    seconds: float = Field(gt=0, le=1e6, description="Seconds of one step, such as 1.25.")
    memory: PeakMemory | None = Field(default=None, description="Peak on the fullest GPU.")
    group: Name | None = Field(default=None, description="Node group that it ran on.")
    global_batch: Batch | None = Field(default=None, description="Sequences per step.")
    virtual_pipeline: Count = Field(default=1, description="Chunks of layers per GPU.")
    microbatch_group: Count | None = Field(
        default=None,
        description="Micro-batches that a chunk takes in turn; else pipeline_parallel.",
    )
    schedule: ScheduleName | None = Field(default=None, description="Pipeline schedule.")
    recompute: Recompute | None = Field(default=None, description="Recomputation of all blocks.")
    zero: ZeroStage | None = Field(default=None, description="What replicas split.")
    model: Name | None = Field(default=None, description="Name of the workload.")
    hidden_size: Count | None = Field(default=None, description="Width of the model.")
    layers: Count | None = Field(default=None, description="Blocks of the model.")
    heads: Count | None = Field(default=None, description="Its attention heads.")
    sequence_length: Batch | None = Field(default=None, description="Tokens per sequence.")
    gpus_per_node: Count | None = Field(default=None, description="GPUs of each node.")


class PlanRow(Record):
    """One line of a plan that ran, as `shortlist` writes it."""

    plan: Name = Field(description="Plan file, beside the table.")
    seconds: float = Field(gt=0, le=1e6, description="Seconds of one step, such as 1.25.")
    memory: PeakMemory | None = Field(default=None, description="Peak on the fullest GPU.")


#: The instance with other sizes of its model, by name of the size.
Resized = Callable[[Mapping[str, int]], Instance]


def resized(text: str, name: str, folder: Path) -> Resized:
    """From an instance file's text; its heads keep their width and its feed-forward its share.

    Raises InstanceError for what such a model cannot have, and for one of a config.json.
    """

    def instance(sizes: Mapping[str, int]) -> Instance:
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
        named = {
            field: sizes[field] for field in ("hidden_size", "layers", "heads") if field in sizes
        }
        tokens = sizes["sequence_length"]
        if own.get("learned_positions"):
            scaled["learned_positions"] = max(tokens, own["learned_positions"])
        workload |= {"sizes": {**own, **scaled, **named}, "sequence_length": tokens}
        return parse_instance(json.dumps({**written, "workload": workload}), name, folder)

    return instance


def read_steps(
    path: Path, instance: Instance, other_sizes: Resized | None = None
) -> list[tuple[MeasuredStep, float | None]]:
    """The steps of a file, each with its measured peak memory in bytes if known.

    other_sizes: makes the instance of rows of other models; without it they are refused.
    Raises InstanceError for all lines that do not fit the format, the model or the machines, and
    for the first that contradicts an earlier one.
    """
    needed = [name for name, field in StepRow.model_fields.items() if field.is_required()]
    allowed = f"{ALLOWED}{','.join(needed)}, or plan,seconds"
    rows = list(csv_fields(read_text(path, allowed)))
    if len(rows) < 2:
        raise InstanceError(f"{path}:1:1", "no measured step", allowed + " and a line per step")
    names = [name for _, name in rows[0][1]]
    steps = all_of(
        partial(_step, path, names, line, fields, instance, other_sizes)
        for line, fields in rows[1:]
    )
    # The same run twice, further apart than such steps scatter
    runs: dict[str, tuple[MeasuredStep, int]] = {}
    for (line, _), (step, _, place) in zip(rows[1:], steps, strict=True):
        run = f"{step.plan!r} {step.instance.workload!r} {step.instance.cluster!r}"
        first, at = runs.setdefault(run, (step, line))
        scatter = SCATTER * (SEVERAL_NOISE if step.several else NOISE)
        if abs(log(step.measured_s / first.measured_s)) > scatter:
            wrong = (
                f"{step.measured_s:g} s, and {first.measured_s:g} s in line {at} of the same run"
            )
            raise place.at("seconds").error(wrong, f"within {100 * scatter:.2g} % of each other")
    return [(step, memory) for step, memory, _ in steps]


def _document(path: Path, names: list[str], line: int, fields: list[tuple[int, str]]) -> Document:
    """One line under the names of the first; texts that are numbers are numbers."""
    if len(fields) != len(names):
        wrong = f"{len(fields)} fields"
        raise InstanceError(f"{path}:{line}:1", wrong, f"{len(names)}: {','.join(names)}")
    children, values = dict[Part, Node](), dict[str, int | float | str]()
    for name, (column, text) in zip(names, fields, strict=True):
        if not text:
            continue
        children[name] = Node(Mark(line, column))
        values[name] = text
        for number in (float, int):  # the last that can read it
            with suppress(ValueError):
                values[name] = number(text)
    return Document(str(path), values, Node(Mark(line, 1), children=children))


def _step(
    path: Path,
    names: list[str],
    line: int,
    fields: list[tuple[int, str]],
    instance: Instance,
    other_sizes: Resized | None,
) -> tuple[MeasuredStep, float | None, Place]:
    place = Place(_document(path, names, line, fields))
    if "plan" in names:
        ran = validated(PlanRow, place.document)
        step = MeasuredStep(instance, _plan(path.parent / ran.plan, place, instance), ran.seconds)
        return _possible(step, place), ran.memory, place
    row = validated(StepRow, place.document)
    instance = _of_model(row, place, instance, other_sizes)
    group = _group(row, place, instance)
    # The instance on as many GPUs of one group as the row has, with its batch
    gpus = row.tensor_parallel * row.data_parallel * row.pipeline_parallel
    size = min(gpus, row.gpus_per_node or group.gpus_per_node)
    nodes = {"gpus_per_node": size, "nodes": gpus // size, "zone": None}
    cluster = instance.cluster.with_groups([group.model_copy(update=nodes)])
    batch = row.global_batch or instance.workload.global_batch
    alone = instance.with_batch(batch).model_copy(update={"cluster": cluster}).on((1,))
    chosen, group_size = _strategies(row, place, instance), row.microbatch_group
    degrees = {
        "degrees": (Degrees(tp=row.tensor_parallel),),
        "dp": row.data_parallel,
        "pp": row.pipeline_parallel,
        "micro_batch": row.micro_batch,
        "vpp": row.virtual_pipeline,
        "microbatch_group": None if group_size == row.pipeline_parallel else group_size,
        "nodes_used": (alone.cluster.groups[0].nodes,),
    }
    plan = megatron_plan(alone, degrees | chosen)
    if plan is None:
        told = f"{alone.workload.num_blocks} blocks and {batch} sequences"
        wrong = f"{told} that such degrees do not divide"
        raise place.error(wrong, "as many blocks on every chunk, micro-batches in every replica")
    num_micro_batches = plan.replicas[0].micro_batches
    chunked, pp = chosen["schedule"] == "interleaved", row.pipeline_parallel
    if group_size is not None and not chunked:
        allowed = "no groups, or several chunks per GPU"
        raise place.at("microbatch_group").error(f"{group_size}, with one chunk", allowed)
    if chunked and not sizes_of_groups(pp, num_micro_batches, [group_size]):
        wrong = f"{num_micro_batches} micro-batches per replica, interleaved"
        wrong += "" if group_size is None else f" in groups of {group_size}"
        allowed = f"a multiple of the {pp} stages, or groups with {pp} or more in the last"
        raise place.error(wrong, allowed)
    return _possible(MeasuredStep(alone, plan, row.seconds), place), row.memory, place


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
    planned = {
        "hidden_size": workload.hidden_size,
        "layers": workload.num_blocks,
        "sequence_length": workload.sequence_length,
    }
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
    tp, gpus = row.tensor_parallel, row.tensor_parallel * row.data_parallel * row.pipeline_parallel
    size, heads = row.gpus_per_node or group.gpus_per_node, instance.workload.kv_heads
    if tp > size or min(gpus, size) % tp or heads % tp:
        allowed = f"divisors of the {heads} heads and of a node's {size} GPUs"
        raise place.at("tensor_parallel").error(f"{tp} GPUs per tensor-parallel group", allowed)
    if gpus > size and gpus % size:
        allowed = f"at most {size}, or whole nodes of {size}"
        raise place.error(f"{gpus} GPUs in all", allowed)
    return group


def _strategies(row: StepRow, place: Place, instance: Instance) -> dict[str, object]:
    """As stated, else the first that the instance names; those that there are."""
    search, chunks = instance.search, row.virtual_pipeline > 1
    plain = next((name for name in search.schedule if name != "interleaved"), "1f1b")
    schedule = row.schedule or ("interleaved" if chunks else plain)
    if (schedule == "interleaved") != chunks:
        allowed = "several with the schedule interleaved, 1 with others"
        raise place.at("virtual_pipeline").error(f"{row.virtual_pipeline}, {schedule}", allowed)
    zero = search.zero[0] if row.zero is None else row.zero
    if zero >= GRADIENTS_SPLIT and row.pipeline_parallel > 1:
        raise place.at("zero").error(f"{zero} with several stages", "0 or 1")
    return {
        "schedule": schedule,
        "recompute": (row.recompute or search.recompute[0],),
        "zero": zero,
    }
