"""Results without a search: the first uniform plan of a tiny instance that fits its memory."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.plan import Plan
from formulations.space import configs
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import ConfigRecord, Result, SearchLog, Status, Termination
from solver.simulate import Operation, Step, step_time_ns
from tests.brute_force import all_orders
from tests.small_instances import random_instance


def uniform_plans(instance: Instance) -> Iterator[Plan]:
    """Plans with near-even splits and shares, in every node order, that fit the memory."""
    chain = len(instance.workload.layers)
    for config in configs(instance):
        total = instance.workload.global_batch // config.micro_batch
        shares = [total // config.dp + (r < total % config.dp) for r in range(config.dp)]
        cuts = [round(chain * s / config.num_stages) for s in range(config.num_stages + 1)]
        tables = build_tables(instance, config)
        for order in all_orders(tables):
            plan = Decisions(order, tuple(cuts), tuple(shares)).plan(tables)
            costs = plan_costs(instance, plan)
            if (costs.memory_bytes <= costs.limit_bytes).all():
                yield plan


def timeline(step: Step) -> list[Operation]:
    """Everything that happens in a step, replica by replica and then the tail."""
    return [*(bar for r in range(len(step.ends)) for bar in step.operations(r)), *step.tail]


def result_of(instance: Instance, plan: Plan) -> Result:
    """A result that claims this plan to be optimal."""
    step_ns = step_time_ns(plan_costs(instance, plan))
    record = ConfigRecord(
        config=plan.config, reason="solved", proof="enumeration", bound_ns=step_ns
    )
    return Result(
        instance=instance,
        status=Status.OPTIMAL,
        termination=Termination.CLOSED,
        plan=plan,
        step_time_ns=step_ns,
        objective=float(step_ns),
        bound=float(step_ns),
        runtime_s=0.5,
        log=SearchLog(configs=(record,)),
        method="exact",
    )


def results(seeds: Iterable[int]) -> Iterator[Result]:
    """A few results of each random instance that has a plan; different configs, then orders."""
    for seed in seeds:
        instance = random_instance(seed)
        by_config = {plan.config: plan for plan in uniform_plans(instance)}
        for plan in by_config.values():
            yield result_of(instance, plan)


@cache
def pipelined_result() -> Result:
    """The first result with several stages, several replicas and ZeRO 1."""
    return next(
        result
        for result in results(range(200))
        if result.plan is not None
        and result.plan.config.pp > 1
        and result.plan.config.dp > 1
        and result.plan.config.zero
    )


def heuristic_result() -> Result:
    """The same plan, of which nothing is claimed but that it is one."""
    return replace(
        pipelined_result(),
        status=Status.FEASIBLE,
        termination=Termination.HEURISTIC,
        bound=None,
        log=SearchLog(),
        method="minmax",
    )


def planless_result(status: Status, termination: Termination) -> Result:
    """A result without plan, as INFEASIBLE or UNKNOWN give."""
    return Result(
        instance=random_instance(0),
        status=status,
        termination=termination,
        plan=None,
        step_time_ns=None,
        objective=None,
        bound=None,
        runtime_s=0.5,
        log=SearchLog(),
        method="exact",
    )


def document_of(result: Result) -> PlanDocument:
    return build_document(result, SolveOptions())
