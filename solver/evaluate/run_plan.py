"""The plan that a run is: its config and groups, held against the hosts, then as a plan file.

Its plan space is the instance's for the run's target, with choices that the instance leaves out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from formulations.costs.plan_costs import plan_costs
from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import even_shares
from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.record import TOO_LONG
from formulations.instance.resolve_search import context_fault, expert_fault, expert_split_fault
from formulations.instance.search import RECOMPUTE_WAYS
from formulations.instance.targets import TARGETS
from formulations.instance.workload import Recompute
from formulations.plan import (
    GRADIENTS_SPLIT,
    Choose,
    Configuration,
    Degrees,
    Plan,
    Recomputed,
    simulable,
    uniform_degrees,
    uniform_plan,
)
from formulations.schedules.interleaved import sizes_of_groups
from formulations.space.configurations import MAX_MICRO_BATCH, expert_degrees, recompute_ways
from formulations.space.launch import SHARD_GROUPS, instance_choices, zero_choices
from formulations.space.slots import shares_sequences
from formulations.units import powers_of_two
from solver.evaluate.launched import Launched
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
        shares, boundaries = even_shares(tables), self.run.boundaries
        return uniform_plan(self.instance, self.config, self.order, boundaries, shares, choose)


def planned(instance: Instance, run: Launched, order: Sequence[int]) -> Planned:
    """The plan of a run on nodes in this order. Raises PlanError where they do not fit."""
    used = tuple(order.count(j) for j in range(len(instance.cluster.groups)))
    if run.flash is not None and not instance.on(used).workload.flash_attention:
        asked, where = run.flash
        allowed = "workload.flash_attention: true in the instance"
        if instance.fused:
            allowed = "--order without nodes whose GPUs have none"
        raise PlanError(where, asked, f"{allowed}, or another backend")
    if run.recompute == "per_op" and (fault := instance.on(used).workload.per_op_fault()):
        raise run.error("recompute", *fault)
    dp = _replicas(instance, run, used)
    share = _share(instance, run, used, dp)
    if run.vpp > 1 and not sizes_of_groups(run.pp, share, [run.microbatch_group]):
        problem = f"{run.vpp} chunks per GPU with {share} micro-batches per replica"
        if run.microbatch_group is None:
            raise run.error("vpp", problem, f"a multiple of the {run.pp} stages, or one chunk")
        allowed = f"{run.pp} to {share}, with {run.pp} or more in the last group"
        problem = f"{problem} in groups of {run.microbatch_group}"
        raise run.error("microbatch_group", problem, allowed)
    if run.by_replica and run.pp > 1 and dp > 1:
        problem = f"ranks of {dp} replicas one after the other"
        allowed = "ranks stage by stage, Megatron-LM's default, with hosts in that order"
        raise run.error("by_replica", problem, allowed)
    space = space_of(instance, run, used)
    alike = ("ep", "etp", "pp", "micro_batch", "schedule", "vpp", "microbatch_group")
    shards = ("zero", "optimizer_instances")
    config = Configuration(
        degrees=uniform_degrees(space, run.tp, run.cp),
        dp=dp,
        recompute=(run.recompute,),
        nodes_used=used,
        **{name: getattr(run, name) for name in (*alike, *shards)},
    )
    config = settled(space, config, run.recompute)
    _check_experts(space, run, config)
    if config.optimizer_instances not in instance_choices(space.on(used), config):
        problem = f"{run.optimizer_instances} groups of {dp} replicas that split states (ZeRO)"
        raise run.error("optimizer_instances", problem, SHARD_GROUPS)
    if not simulable(space, config):
        raise run.error("micro_batch", TOO_LONG, "larger micro-batches")
    return Planned(space, run, tuple(order), config)


def _replicas(instance: Instance, run: Launched, used: Sequence[int]) -> int:
    """Data-parallel degree on so many nodes of each group."""
    slots, width, workload = 0, run.tp * run.cp, instance.workload
    for group, count in zip(instance.cluster.groups, used, strict=True):
        size = group.gpus_per_node
        if count and size % run.tp:
            allowed = f"a divisor of the {size} GPUs of a node of {group.name}"
            raise run.error("tp", f"tensor groups of {run.tp} GPUs", allowed)
        if count and not group.may_hold(run.tp, width):
            problem = f"{run.cp} tensor groups of {run.tp} GPUs per sequence"
            verb, node = ("divides", "a node") if group.machines == 1 else ("fills", "joined nodes")
            allowed = f"what {verb} the {size} GPUs of {node} of {group.name}"
            raise run.error("cp", problem, allowed)
        slots += count * size // width
    if workload.kv_heads % run.tp:
        allowed = f"a divisor of the {workload.kv_heads} key and value heads"
        raise run.error("tp", f"tensor groups of {run.tp} GPUs", allowed)
    _check_sequences(instance.on(used), run)
    groups = f"groups of {run.tp}" if run.cp == 1 else f"x context groups of {width}"
    hosts = f"the {slots * width} GPUs of {sum(used)} hosts in tensor {groups}"
    if slots % run.pp:
        raise run.error("pp", f"{run.pp} pipeline stages", f"a divisor of {slots}: {hosts}")
    if run.dp not in (None, slots // run.pp):
        allowed = f"{slots // run.pp} on {hosts} and {run.pp} stages; other hosts with --order"
        raise run.error("dp", f"{run.dp} replicas", allowed)
    return slots // run.pp


def _check_sequences(instance: Instance, run: Launched) -> None:
    """Raises PlanError where GPUs cannot share, or split, sequences as in the run."""
    search, workload = instance.search.model_copy(update=dict(run.settings)), instance.workload
    profiled, degrees = instance.profile is not None, Degrees(tp=run.tp, cp=run.cp)
    if run.settings.get("sequence_parallel") and workload.sequence_length % run.tp:
        problem = f"tensor groups of {run.tp} GPUs, which split sequences"
        allowed = f"a divisor of {workload.sequence_length} tokens, or whole sequences"
        raise run.error("tp", problem, allowed)
    if fault := context_fault(workload, instance.cluster, profiled, run.cp):
        raise run.error("cp", *fault)
    if not shares_sequences(instance.model_copy(update={"search": search}), degrees):
        problem = f"{run.cp} GPUs per sequence, by {search.context_method or 'any method'}"
        allowed = (
            f"degrees whose double, times tp, divides {workload.sequence_length} tokens; of an"
            f" exchange of heads, those that with tp divide {workload.kv_heads} heads"
        )
        raise run.error("cp", problem, allowed)


def _share(instance: Instance, run: Launched, used: Sequence[int], dp: int) -> int:
    """Micro-batches per replica. Raises PlanError where replicas cannot share the batch evenly."""
    batch = instance.workload.global_batch
    each, rest = divmod(batch, dp)
    told = f"{batch} sequences for {dp} replicas"
    if not rest and each % run.micro_batch:
        problem = f"micro-batches of {run.micro_batch}"
        raise run.error("micro_batch", problem, f"a divisor of {each}: {told}")
    if not rest:
        return each // run.micro_batch
    reached = 1  # bit n: some of the hosts have n tensor groups
    for group, count in zip(instance.cluster.groups, used, strict=True):
        taken = 1
        while count:
            taken = min(taken, count)
            reached |= reached << group.gpus_per_node // (run.tp * run.cp) * taken
            count, taken = count - taken, 2 * taken
    replicas = range(0 if run.dp else dp - 1, 0, -1)  # as many as stated, or fewer
    fewer = [n for n in replicas if not batch % n and reached >> n * run.pp & 1]
    hosts = f"--order with hosts for {' or '.join(map(str, fewer[:4]))} replicas, or "
    raise run.error("dp", told, f"{hosts if fewer else ''}degrees for replicas that divide {batch}")


def _check_experts(space: Instance, run: Launched, config: Configuration) -> None:
    """Raises PlanError where GPUs cannot share experts as in the run."""
    profiled = space.profile is not None
    if fault := expert_fault(space.workload, space.cluster, profiled, run.ep):
        raise run.error("ep", *fault)
    told = {"expert_parallel": (run.ep,), "expert_tensor_parallel": (run.etp or "tp",)}
    search = space.search.model_copy(update={**run.settings, **told})
    fault = expert_split_fault(space.workload, profiled, search.sequence_parallel)
    if run.etp and fault:
        raise run.error("etp", *fault)
    alone = space.model_copy(update={"search": search})
    if not expert_degrees(alone, config.degrees, config.dp, config.nodes_used):
        allowed = f"a divisor of the {config.expert_grid(0)} ranks of a stage, in one zone"
        allowed += ", with sequence parallelism where tp is above 1"
        raise run.error("ep", f"{run.ep} GPUs that share experts", allowed)


def settled(space: Instance, config: Configuration, way: Recompute) -> Configuration:
    """The configuration as the plan space names it, for stages that recompute in some way.

    Where nothing is split there is one ZeRO stage; stages that may differ choose among all ways.
    """
    zero = (
        config.zero if config.has_copies else next(iter(zero_choices(space, config)), config.zero)
    )
    ways = recompute_ways(space, zero)
    allowed = next((choice for choice in ways if way in choice), (way,))
    return config.model_copy(update={"zero": zero, "recompute": allowed})


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
