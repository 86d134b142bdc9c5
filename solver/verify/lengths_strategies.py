"""Whether the strategies of mixed lengths are those of the instance, and take what a file says.

Of strategies that were measured the instance has the times. Any other one has a plan file; its rows
take what `formulations.lengths.row_times` works out of that plan, and fit every replica, as often
as 1F1B holds them.
"""

from formulations.instance import Instance
from formulations.instance.rows import of_rows
from formulations.lengths.measured import atoms_of, measured_problem
from formulations.lengths.problem import Mixed, Strategy
from formulations.lengths.row_times import RowCosts, instance_of_time
from formulations.plan import Plan
from formulations.space import PlanSpace
from solver.document import PlanDocument
from solver.lengths_document import LengthsDocument, ProblemDocument, StrategyDocument
from solver.verify.cascade import Effort
from solver.verify.clock import Clock
from solver.verify.feasibility import checked_plan
from solver.verify.findings import Findings
from solver.verify.plan_file import verify_document


def check_strategies(document: LengthsDocument, findings: Findings, clock: Clock) -> list[Plan]:
    """The problem of the file beside that of its instance. Raises TimeUpError.

    Returns the plans of all strategies; none if they were measured, or one is refused.
    """
    instance, problem = document.instance, document.problem
    if instance is None:
        _check_files(document, (), findings)
        findings.reserve("what strategies and switches take: the file holds no instance")
        return []
    lengths = instance.lengths
    if lengths is None:
        findings.refuse("instance.lengths", None, "the section of a step of mixed lengths")
        return []
    findings.equal("workload", document.workload, instance.workload.name)
    if lengths.strategies:
        mixed, above = measured_problem(instance)
        _check_same(problem, mixed, findings)
        _check_files(document, above, findings)
        findings.note("times of strategies and switches are those of the instance")
        return []
    findings.equal("problem.rows", problem.rows, lengths.rows)
    findings.equal("problem.atoms", problem.mixed.atoms, atoms_of(lengths))
    findings.equal("problem.parameters_return", problem.parameters_return, False)
    number = len(problem.strategies)
    if not findings.equal("plans: number", len(document.plans), number):
        return []
    return _check_plans(document, instance_of_time(instance), findings, clock)


def _check_files(document: LengthsDocument, above: tuple[float, ...], findings: Findings) -> None:
    """No plans, and how far times are above those that were measured."""
    findings.equal("above", document.above, above)
    findings.equal("plans: number", len(document.plans), 0)
    findings.equal("switch_plans: number", len(document.switch_plans), 0)


def _check_same(problem: ProblemDocument, mixed: Mixed, findings: Findings) -> None:
    """Every field of the problem is that of the instance."""
    expected = ProblemDocument.of(mixed)
    for field in ProblemDocument.model_fields:
        written, defined = getattr(problem, field), getattr(expected, field)
        if field != "strategies" or len(written) != len(defined):
            findings.equal(f"problem.{field}", written, defined)
            continue
        for q, pair in enumerate(zip(written, defined, strict=True)):
            _check_strategy(f"problem.strategies[{q}]", *pair, findings)


def _check_strategy(
    field: str, written: StrategyDocument, defined: StrategyDocument, findings: Findings
) -> None:
    """Every field of a strategy as it is defined."""
    for name in StrategyDocument.model_fields:
        findings.equal(f"{field}.{name}", getattr(written, name), getattr(defined, name))


def _check_plans(
    document: LengthsDocument, timed: Instance, findings: Findings, clock: Clock
) -> list[Plan]:
    """Every strategy by its plan."""
    strategies, plans = document.problem.mixed.strategies, list[Plan]()
    for q, (strategy, file) in enumerate(zip(strategies, document.plans, strict=True)):
        clock.check()
        plan = _plan_of(timed, strategy, file, f"plans[{q}]", findings)
        if plan is None or not isinstance(strategy, Strategy):
            return []
        field = f"problem.strategies[{q}]"
        _check_name(strategy.name, plan, field, findings)
        longest_rows = [replica.longest_row for replica in strategy.replicas]
        if not findings.equal(f"{field}.replicas: number", len(longest_rows), plan.shape.dp):
            return []
        costs = RowCosts(timed, plan)
        for r, longest in enumerate(longest_rows):
            where = f"{field}.replicas, pipeline {r}: longest_row"
            findings.require(costs.fits(longest, r), where, longest, "rows that fit its GPUs")
        fewest = min(replica.micro_batches for replica in plan.replicas)
        text = f"{plan.shape.pp}, as many as a stage may hold at once"
        findings.require(
            fewest >= plan.shape.pp, f"{field}: micro-batches of its plan", fewest, text
        )
        defined = costs.strategy(strategy.name, longest_rows)
        expected = StrategyDocument.of(defined.strategy)
        _check_strategy(field, document.problem.strategies[q], expected, findings)
        findings.equal(f"above[{q}]", document.above[q : q + 1], (defined.above,))
        plans.append(plan)
    findings.equal("above: number", len(document.above), len(plans))
    findings.note(f"rows, reduction of gradients and optimizer of {len(plans)} strategies")
    return [] if findings.num_problems else plans


def _plan_of(
    timed: Instance, strategy: object, file: PlanDocument, field: str, findings: Findings
) -> Plan | None:
    """The plan of a strategy, if it is one of the instance with rows as long as they get."""
    if not isinstance(strategy, Strategy):
        findings.refuse(f"{field}: strategy", "measured", "as many replicas as a plan has")
        return None
    longest_rows = [replica.longest_row for replica in strategy.replicas]
    tokens = timed.workload.sequence_length
    longest = max(longest_rows)
    if not findings.require(longest <= tokens, f"{field}: longest_row", longest, f"up to {tokens}"):
        return None
    number = sum(replica.micro_batches for replica in file.replicas)
    same = file.instance == of_rows(timed, strategy.longest, number)
    allowed = f"that of the file with rows of {strategy.longest} tokens"
    findings.require(same, f"{field}.instance", "another", allowed)
    for problem in verify_document(file, Effort(prove="nothing")).problems:
        findings.refuse(field, problem, "a plan file that verify accepts")
    if findings.num_problems:
        return None
    plan = checked_plan(PlanSpace(file.instance), file, Findings())
    findings.require(plan is not None, f"{field}.shape", None, "a plan")
    return plan


def _check_name(name: str, plan: Plan, field: str, findings: Findings) -> None:
    """The degrees in a strategy's name are those of its plan."""
    shape = plan.shape
    tps = "/".join(dict.fromkeys(str(degrees.tp) for degrees in shape.degrees_used))
    degrees = [part for part in name.split(" (")[0].split(", ") if part[:3] in _DEGREES]
    findings.equal(f"{field}.name", degrees, [f"dp {shape.dp}", f"tp {tps}", f"pp {shape.pp}"])


_DEGREES = ("dp ", "tp ", "pp ")
