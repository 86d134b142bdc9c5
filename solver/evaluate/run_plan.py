"""The plan that a run is: its shape and groups, held against the hosts, then as a plan file."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import even_shares
from formulations.instance import Instance
from formulations.instance.extent import TOO_LONG
from formulations.instance.workload import Recompute
from formulations.plan import (
    Choose,
    Plan,
    Recomputed,
    Shape,
    simulable,
    uniform_degrees,
    uniform_plan,
)
from solver.evaluate.launched import Launched
from solver.evaluate.run_space import space_of
from solver.result import Result, SearchLog, Status, Termination, objective_weight
from solver.search.shapes import recompute_ways, zero_stages
from solver.simulate import step_time_ns


@dataclass(frozen=True)
class Planned:
    """What is run, as a plan. space: the instance, with the choices of the run among its own."""

    space: Instance
    run: Launched
    order: tuple[int, ...]  #: node groups
    shape: Shape

    @property
    def instance(self) -> Instance:
        """The space with the settings of the run: what it is held against."""
        search = self.space.search.model_copy(update=dict(self.run.settings))
        return self.space.model_copy(update={"search": search})

    @property
    def plan(self) -> Plan:
        """Groups, layers and micro-batches."""
        tables = build_tables(self.instance, self.shape)
        shares, choose = even_shares(tables), as_run(tables, self.run)
        return uniform_plan(
            self.instance, self.shape, self.order, self.run.boundaries, shares, choose
        )


def planned(instance: Instance, run: Launched, order: Sequence[int]) -> Planned:
    """The plan of a run on nodes in this order. Raises PlanError where they do not fit."""
    used = tuple(order.count(j) for j in range(len(instance.cluster.groups)))
    dp = _replicas(instance, run, used)
    share, rest = divmod(instance.workload.global_batch, run.micro_batch * dp)
    if rest or not share:
        total = f"{instance.workload.global_batch} sequences for {dp} replicas"
        raise run.error(
            "micro_batch", f"micro-batches of {run.micro_batch}", f"sizes that share {total} evenly"
        )
    if run.vpp > 1 and share % run.pp:
        found = f"{run.vpp} chunks per GPU with {share} micro-batches per replica"
        raise run.error("vpp", found, f"a multiple of the {run.pp} stages, or one chunk")
    space = _space(instance, run, used)
    shape = _shape(space, run, dp, used)
    if not simulable(space, shape):
        raise run.error("micro_batch", TOO_LONG, "larger micro-batches")
    return Planned(space, run, tuple(order), shape)


def _replicas(instance: Instance, run: Launched, used: Sequence[int]) -> int:
    """Data-parallel degree on so many nodes of each group."""
    slots = 0
    for group, count in zip(instance.cluster.groups, used, strict=True):
        if count and group.gpus_per_node % run.tp:
            found = f"tensor groups of {run.tp} GPUs"
            allowed = f"a divisor of the {group.gpus_per_node} GPUs of a node of {group.name}"
            raise run.error("tp", found, allowed)
        slots += count * group.gpus_per_node // run.tp
    if instance.workload.kv_heads % run.tp:
        allowed = f"a divisor of the {instance.workload.kv_heads} key and value heads"
        raise run.error("tp", f"tensor groups of {run.tp} GPUs", allowed)
    hosts = f"the {slots * run.tp} GPUs of {sum(used)} hosts in tensor groups of {run.tp}"
    if slots % run.pp:
        raise run.error("pp", f"{run.pp} pipeline stages", f"a divisor of {slots}: {hosts}")
    if run.dp not in (None, slots // run.pp):
        allowed = f"{slots // run.pp} on {hosts} and {run.pp} stages; other hosts with --order"
        raise run.error("dp", f"{run.dp} replicas", allowed)
    return slots // run.pp


def _space(instance: Instance, run: Launched, used: tuple[int, ...]) -> Instance:
    """The plan space that holds the run, on these nodes."""
    space = space_of(instance, run)
    blocks = [layer.is_block for layer in instance.workload.layers]
    found: dict[str, object] = {}
    if any(not any(blocks[start:end]) for start, end in pairwise(run.boundaries)):
        found["embedding_only_stages"] = True
    if any(n < group.nodes for n, group in zip(used, instance.cluster.groups, strict=True)):
        found["idle_nodes"] = True
    return space.model_copy(update={"search": space.search.model_copy(update=found)})


def _shape(space: Instance, run: Launched, dp: int, used: tuple[int, ...]) -> Shape:
    shape = Shape(
        degrees=uniform_degrees(space, run.tp),
        dp=dp,
        pp=run.pp,
        micro_batch=run.micro_batch,
        schedule=run.schedule,
        recompute=(run.recompute,),
        zero=run.zero,
        nodes_used=used,
        vpp=run.vpp,
    )
    return settled(space, shape, run.recompute)


def settled(space: Instance, shape: Shape, way: Recompute) -> Shape:
    """The shape as the plan space names it, for stages that recompute in some way.

    What nothing is split of has one ZeRO stage; stages that may differ choose among all ways.
    """
    zero = shape.zero
    if shape.dp == 1:
        zero = next(iter(zero_stages(space, 1, shape.pp, shape.ep)), zero)
    ways = recompute_ways(space, zero)
    allowed = next((one for one in ways if way in one), (way,))
    return shape.model_copy(update={"zero": zero, "recompute": allowed})


def as_run(tables: CostTables, run: Launched) -> Choose:
    """What devices of a shape recompute if they do as a run does."""

    def recomputed(layers: tuple[int, int]) -> Recomputed:
        own = int(tables.blocks_before[layers[1]] - tables.blocks_before[layers[0]])
        if not own or run.recompute == "none":
            way = run.recompute if own else tables.shape.recompute[0]
            return Recomputed(way=way, blocks=0)
        most = own if run.first_blocks is None else run.first_blocks
        return Recomputed(way=run.recompute, blocks=min(most, own))

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
        objective=time_ns * objective_weight(instance, plan.shape),
        bound=None,
        runtime_s=0.0,
        log=SearchLog(),
        method="evaluate",
    )
