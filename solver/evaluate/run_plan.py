"""From launch files, or degrees in words, to the plan that they start on the machines at hand.

Its plan space is the instance's for the run's target, with choices that the instance leaves out.
Machines stand in the order that the user says, that of the hosts file, or as listed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from formulations.costs.plan_costs import plan_costs
from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import even_shares
from formulations.errors import Fault, PlanError, PlannerError
from formulations.instance import Instance
from formulations.instance.documents import csv_rows, read_text
from formulations.instance.record import TOO_LONG
from formulations.instance.resolve_search import context_fault, expert_fault, expert_split_fault
from formulations.instance.search import RECOMPUTE_WAYS
from formulations.instance.targets import TARGETS
from formulations.instance.workload import Recompute
from formulations.plan import (
    GRADIENTS_SPLIT,
    Choose,
    Configuration,
    Plan,
    Recomputed,
    simulable,
    uniform_degrees,
    uniform_plan,
)
from formulations.space.configurations import MAX_MICRO_BATCH, PlanSpace, recompute_ways
from formulations.space.launch import sync_choices, zero_choices
from formulations.units import powers_of_two
from solver.evaluate import megatron_run, torchtitan_run
from solver.evaluate.launched import Launched, run_of_degrees
from solver.evaluate.megatron_run import read_flags
from solver.export.job import APART, HOSTS, RANKS, Job, host_names, name_clash
from solver.files import fields_of
from solver.report.quantities import counted
from solver.result import Result, SearchLog, Status, Termination, objective_weight
from solver.simulate import step_time_ns


@dataclass(frozen=True)
class Planned:
    """What is run, as a plan. space: the instance, with the choices of the run among its own.

    recomputes_least: does every stage recompute as little as fits, instead of as the run does?
    """

    space: Instance
    run: Launched
    order: tuple[int, ...]  #: node groups
    config: Configuration
    boundaries: tuple[int, ...]  #: of layers, of the stages
    recomputes_least: bool = False

    @property
    def instance(self) -> Instance:
        """The space with the settings of the run: what it is held against."""
        search = self.space.search.model_copy(update=dict(self.run.settings))
        return self.space.model_copy(update={"search": search})

    @property
    def plan(self) -> Plan:
        """Groups, layers and micro-batches."""
        tables = build_tables(self.instance, self.config)
        choose = (
            StageCosts(tables).recomputed if self.recomputes_least else as_run(tables, self.run)
        )
        shares = even_shares(tables)
        return uniform_plan(self.instance, self.config, self.order, self.boundaries, shares, choose)


def planned(instance: Instance, run: Launched, order: Sequence[int]) -> Planned:
    """The plan of a run on nodes in this order. Raises PlanError where they do not fit."""
    used = tuple(order.count(j) for j in range(len(instance.cluster.groups)))
    space = space_of(instance, run, used)
    nodes = zip(instance.cluster.groups, used, strict=True)
    slots = sum(count * (group.gpus_per_node // (run.tp * run.cp)) for group, count in nodes)
    dp = run.dp or max(1, slots // run.pp)
    _check_run(space, used, run, dp)
    alike = ("ep", "etp", "pp", "micro_batch", "schedule", "vpp", "microbatch_group")
    shards = ("zero", "optimizer_instances", "sync_each_batch")
    config = Configuration(
        degrees=uniform_degrees(space, run.tp, run.cp),
        dp=dp,
        recompute=(run.recompute,),
        nodes_used=used,
        **fields_of(run, *alike, *shards),
    )
    config = settled(space, config, run.recompute)
    job = Planned(space, run, tuple(order), config, run.boundaries)
    _check_config(job)
    if not simulable(space, job.config):
        raise run.error("micro_batch", TOO_LONG, "larger micro-batches")
    return job


def _check_run(instance: Instance, used: Sequence[int], run: Launched, dp: int) -> None:
    """Raises PlanError for what no plan of a model on some nodes can be, whatever its degrees."""
    workload, profiled = instance.on(used).workload, instance.profile is not None
    if run.flash is not None and not workload.flash_attention:
        asked, where = run.flash
        allowed = "workload.flash_attention: true in the instance"
        if instance.fused:
            allowed = "--order without nodes whose GPUs have none"
        raise PlanError(where, asked, f"{allowed}, or another backend")
    search = instance.search.model_copy(update=dict(run.settings))
    per_op, split = run.recompute == "per_op", run.settings.get("sequence_parallel")
    pieces = f"tensor groups of {run.tp} GPUs, which split sequences"
    tokens = f"a divisor of {workload.sequence_length} tokens, or whole sequences"
    in_a_row = f"ranks of {dp} replicas one after the other"
    by_stage = "ranks stage by stage, Megatron-LM's default, with hosts in that order"
    apart = run.by_replica and run.pp > 1 and dp > 1
    kept_whole = run.zero >= GRADIENTS_SPLIT and run.pp > 1  # gradients of several micro-batches
    whole_experts = expert_split_fault(workload, profiled, search.sequence_parallel)
    faults = {
        "recompute": workload.per_op_fault() if per_op else None,
        "tp": Fault(pieces, tokens) if split and workload.sequence_length % run.tp else None,
        "cp": context_fault(workload, instance.cluster, profiled, run.cp),
        "ep": expert_fault(workload, instance.cluster, profiled, run.ep),
        "etp": whole_experts if run.etp else None,
        "zero": Fault(f"ZeRO {run.zero} with several stages", "0 or 1") if kept_whole else None,
        "by_replica": Fault(in_a_row, by_stage) if apart else None,
    }
    for name, fault in faults.items():
        if fault:
            raise run.error(name, *fault)


#: By the first of the fields of a configuration that are chosen together: what a run says of them,
#: and what it means where it says nothing.
_SAID: dict[str, dict[str, str]] = {
    "degrees": {"tp": "1", "cp": "1"},
    "dp": {"dp": "any", "pp": "1"},
    "ep": {"ep": "1", "etp": "tp"},
    "schedule": {"schedule": "1f1b", "vpp": "1", "microbatch_group": "pp"},
}
#: Choices that are named.
EXAMPLES = 8


def _check_config(job: Planned) -> None:
    """Raises PlanError for degrees that are not in the plan space, at whatever price it is.

    Replicas of a launched job have equally many micro-batches.
    """
    free = {"max_price_usd_per_hour": None}
    alike = job.instance.but(search={"micro_batches": "even"}, limits=free)
    departure = PlanSpace(alike).departure(job.config)
    if departure is None:
        return
    first = departure.fields[0]
    said = _SAID.get(first, {first: ""})

    def words(values: tuple[Any, ...]) -> str:
        numbers = (values[0][0].tp, values[0][0].cp) if first == "degrees" else values
        pairs = zip(numbers, said.values(), strict=True)
        return "/".join(unsaid if n is None else str(n).lower() for n, unsaid in pairs)

    choices = list(dict.fromkeys(map(words, departure.allowed)))
    more = [f"{len(choices) - EXAMPLES} others"] * (len(choices) > EXAMPLES)
    allowed = " or ".join([*choices[:EXAMPLES], *more]) or "none"
    groups = job.instance.cluster.groups
    gpus = sum(groups[j].gpus_per_node for j in job.order)
    sizes = f"{job.space.workload.global_batch} sequences, {job.space.workload.kv_heads} heads"
    hosts = f"for {sizes} and the {gpus} GPUs of {counted(len(job.order), 'host')}"
    stated = (name for name in reversed(said) if getattr(job.run, name) not in (None, 1, "1f1b"))
    problem = f"{'/'.join(said)} {words(departure.values)}"
    raise job.run.error(next(stated, first), problem, f"{allowed}, {hosts}; or other hosts")


def settled(space: Instance, config: Configuration, way: Recompute) -> Configuration:
    """The configuration as the plan space names it, for stages that recompute in some way.

    Where nothing is split there is one ZeRO stage; stages that may differ choose among all ways.
    """
    zero = (
        config.zero if config.has_copies else next(iter(zero_choices(space, config)), config.zero)
    )
    ways = recompute_ways(space, zero)
    allowed = next((choice for choice in ways if way in choice), (way,))
    nothing_kept = config.splits.parameters and all(sync_choices(space, config))
    sync = config.sync_each_batch or nothing_kept
    return config.but(zero=zero, sync_each_batch=sync, recompute=allowed)


def as_run(tables: CostTables, run: Launched) -> Choose:
    """What devices of a configuration recompute if they do as a run does."""

    def recomputed(layers: tuple[int, int]) -> Recomputed:
        blocks = int(tables.blocks_before[layers[1]] - tables.blocks_before[layers[0]])
        if not blocks or run.recompute == "none":
            way = run.recompute if blocks else tables.config.recompute[0]
            return Recomputed(way=way, blocks=0)
        count = blocks if run.first_blocks is None else run.first_blocks
        return Recomputed(way=run.recompute, blocks=min(count, blocks))

    return lambda _, __, ___, chunks: [recomputed(layers) for layers in chunks]


def judged(instance: Instance, plan: Plan) -> Result:
    """The plan with its step time by the simulator, proved to be nothing but a plan."""
    time_ns = step_time_ns(plan_costs(instance, plan))
    return Result(
        instance=instance,
        status=Status.FEASIBLE,
        termination=Termination.GIVEN,
        plan=plan,
        step_time_ns=time_ns,
        objective=time_ns * objective_weight(instance, plan.config),
        bound=None,
        runtime_s=0.0,
        log=SearchLog(),
        method="evaluate",
    )


def space_of(instance: Instance, run: Launched, used: Sequence[int]) -> Instance:
    """The instance for the target of a run, with each of the run's choices among those allowed.

    Where the first blocks of every rank are recomputed, which no plan of Megatron-LM's space does,
    stages recompute on their own; where its FSDP splits more than states, any target's do.
    """
    search, groups = instance.search, instance.cluster.groups
    if run.target != search.target:
        kept = TARGETS[run.target].kept(search)
        search = search.model_copy(update={**kept, "target": run.target})
    partly = run.first_blocks is not None
    powers = powers_of_two(max(group.gpus_per_node for group in groups))
    ways = {*search.recompute, run.recompute, *(("none",) if partly else ())}
    splits = (*search.expert_tensor_parallel, run.etp or "tp")
    wider: dict[str, object] = {
        "tensor_parallel": _with(search.tensor_parallel, run.tp, powers),
        "pipeline_parallel": _with(search.pipeline_parallel, run.pp),
        "context_parallel": _with(search.context_parallel, run.cp),
        "expert_parallel": _with(search.expert_parallel, run.ep),
        "expert_tensor_parallel": tuple(dict.fromkeys(splits)),
        "data_parallel": None if run.dp is None else _with(search.data_parallel, run.dp),
        "micro_batch": _with(search.micro_batch, run.micro_batch, powers_of_two(MAX_MICRO_BATCH)),
        "zero": tuple(sorted({*search.zero, run.zero})),
        "sync_each_batch": tuple({*search.sync_each_batch, run.sync_each_batch}),
        "optimizer_instances": _with(search.optimizer_instances, run.optimizer_instances),
        "schedule": tuple(dict.fromkeys((*search.schedule, run.schedule))),
        "recompute": tuple(way for way in RECOMPUTE_WAYS if way in ways),
    }
    if run.vpp > 1:
        wider["virtual_pipeline"] = tuple(sorted({*search.virtual_pipeline, run.vpp}))
        sizes = (*search.microbatch_group, run.microbatch_group or "pp")
        wider["microbatch_group"] = tuple(dict.fromkeys(sizes))
    if partly:
        wider["recompute_per"] = "stage"
    if partly or (run.target == "megatron" and run.zero >= GRADIENTS_SPLIT):
        wider["target"] = "any"
    blocks = [layer.is_block for layer in instance.workload.layers]
    if any(not any(blocks[start:end]) for start, end in pairwise(run.boundaries)):
        wider["embedding_only_stages"] = True
    if any(n < group.nodes for n, group in zip(used, groups, strict=True)):
        wider["idle_nodes"] = True
    return instance.but(search=search.model_copy(update=wider))


def _with(
    values: tuple[int, ...] | None, value: int, otherwise: tuple[int, ...] | None = None
) -> tuple[int, ...] | None:
    """The values with one more; otherwise: what None stands for, None if that is everything."""
    listed = otherwise if values is None else values
    return values if listed is None or value in listed else (*listed, value)


# Launch files, and the order of the hosts beside them


ALLOWED = "one of --megatron FILE, --torchtitan DIR, --degrees NAME=VALUE,..."


def read_run(
    instance: Instance,
    arguments: Path | None = None,
    configuration: Path | None = None,
    stated: str | None = None,
    order: str | None = None,
) -> Planned:
    """The plan that one of the three describes; order: of the hosts, where it is stated.

    Raises PlanError, with file and line, for what cannot be launched there.
    """
    if sum(source is not None for source in (arguments, configuration, stated)) != 1:
        raise PlannerError(ALLOWED)
    folder: Path | None = None
    if arguments is not None:
        text = read_text(arguments, "a file with arguments of Megatron-LM")
        run = megatron_run.launched(read_flags(text, str(arguments)), instance)
        folder = arguments.parent
    elif configuration is not None:
        run, folder = torchtitan_run.launched(configuration, instance), configuration
    else:
        run = run_of_degrees(stated or "", instance)
    if order is not None:
        return planned(instance, run, named_order(instance, order))
    if folder is None:
        return planned(instance, run, tuple(instance.cluster.node_groups))
    launched_plan = planned(instance, run, order_beside(instance, folder))
    check_ranks_beside(launched_plan.instance, launched_plan.plan, folder)
    return launched_plan


OPTION = "--order"
#: Of a rank, what the order of equal machines does not change.
_COLUMNS = ("rank", "gpu", "gpu_type", "tensor", "data", "stage")


def named_order(instance: Instance, text: str) -> tuple[int, ...]:
    """Node groups by name, with commas between them: `small,big,small*2`."""
    numbers = {group.name: j for j, group in enumerate(instance.cluster.groups)}
    order: list[int] = []
    for part in text.split(","):
        run = re.fullmatch(r"\s*(.*?)\s*(?:\*\s*([1-9]\d{0,5}))?\s*", part)
        name = "" if run is None else run[1]
        if run is None or name not in numbers:
            allowed = f"{', '.join(numbers)}, and NAME*N for several"
            raise PlanError(OPTION, f"the node group {name!r}", allowed)
        order += [numbers[name]] * int(run[2] or 1)
        _check_number(instance, order, OPTION)
    return tuple(order)


def _check_number(instance: Instance, order: list[int], where: str) -> None:
    group = instance.cluster.groups[order[-1]]
    if order.count(order[-1]) > group.nodes:
        raise PlanError(where, f"{order.count(order[-1])} nodes of {group.name}", f"{group.nodes}")


def order_beside(instance: Instance, folder: Path) -> tuple[int, ...]:
    """The order of the hosts file in a folder, if it has one; else that of the instance.

    Raises PlanError for a host that is no node of the instance, or might be another one.
    """
    path, groups = folder / HOSTS, instance.cluster.node_groups
    if not path.is_file():
        return tuple(groups)
    if clash := name_clash(instance.cluster):
        raise PlanError(str(path), clash, f"{APART}, or {OPTION} with node groups")
    nodes = zip(host_names(instance.cluster), groups, strict=True)
    numbers = {name: j for machines, j in nodes for name in machines}
    order: list[int] = []
    missing = 0  # machines of the last node
    for line, name in enumerate(read_text(path, "names of hosts").splitlines(), 1):
        if not name.strip():
            continue
        if name.strip() not in numbers:
            allowed = f"{', '.join(list(numbers)[:3])}, ..., or {OPTION} with node groups"
            raise PlanError(f"{path}:{line}", f"the host {name.strip()}", allowed)
        j = numbers[name.strip()]
        group = instance.cluster.groups[order[-1] if missing else j]
        if missing and j != order[-1]:
            allowed = f"a host of {group.name}, of which {group.machines} follow each other"
            raise PlanError(f"{path}:{line}", f"the host {name.strip()}", allowed)
        if not missing:
            order.append(j)
            _check_number(instance, order, f"{path}:{line}")
        missing = (missing or group.machines) - 1
    if missing:
        allowed = f"{missing} more of {group.name}, whose nodes are joined"
        raise PlanError(str(path), f"{name.strip()} as the last host", allowed)
    if not order:
        raise PlanError(str(path), "no host", "one host a line")
    return tuple(order)


def check_ranks_beside(instance: Instance, plan: Plan, folder: Path) -> None:
    """Raises PlanError where a rank table in the folder starts other ranks than the plan has."""
    path = folder / RANKS
    if not path.is_file():
        return
    names, *table = csv_rows(path, "a table of ranks") or [[]]
    rows = [dict(zip(names, row, strict=False)) for row in table]
    ranks = Job(instance, plan).ranks
    for line, (row, rank) in enumerate(zip(rows, ranks, strict=False), 2):
        for name in _COLUMNS:
            planned = str(getattr(rank, name))
            if row.get(name) != planned:
                problem = f"{name} {row.get(name)} of rank {rank.rank}"
                allowed = f"{planned}, with these degrees and hosts"
                raise PlanError(f"{path}:{line}", problem, allowed)
    if len(rows) != len(ranks):
        allowed = f"{len(ranks)}, the GPUs of the hosts"
        raise PlanError(str(path), f"{len(rows)} ranks", allowed)
