"""Whether strategies and switches of mixed lengths take what a file says.

Of a strategy that was measured the instance says so. Any other one has a plan file: its costs are
counted again, by `recount`. Padded rows take what that says of each length of the step. Packed ones
have the lengths that `docs/lengths.md` names, whole and as many short sequences; their times may
not be below that, nor further above than the file says. Every replica has room for its longest row,
as often as 1F1B holds it. See `mixed_switches` for switches.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product

from formulations.costs.plan_costs import PlanCosts
from formulations.instance import Instance
from formulations.instance.instance import Objective
from formulations.instance.lengths import Lengths, MeasuredStrategy
from formulations.instance.rows import measured_rows, of_rows
from formulations.plan import Plan
from formulations.units import ceil_div, ceil_ns
from solver.document import PlanDocument
from solver.lengths_document import LengthsDocument, ReplicasDocument, StrategyDocument
from solver.verify.cascade import Effort
from solver.verify.clock import Clock
from solver.verify.feasibility import checked_plan
from solver.verify.findings import Findings
from solver.verify.plan_file import verify_document
from solver.verify.recount import Recount
from solver.verify.space import PlanSpace

#: Lengths of packed rows, from half the longest on; sequences of a row of many.
PACKED, MANY = 5, 256
#: Noise of a share of a row's time, and of a curve in floats, ns.
SHARE_NOISE, NOISE_NS = 1e-12, 1.0

Point = tuple[int, int, int]  #: of a row: squares of its sequences, their sum, ns


def check_strategies(document: LengthsDocument, findings: Findings, clock: Clock) -> list[Plan]:
    """Lengths and strategies, by the instance of the file. Raises TimeUpError.

    The plans of all strategies; none if they were measured, or one is refused.
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
    findings.equal("problem.rows", problem.rows, lengths.rows)
    atoms = [(one.tokens, one.count) for one in problem.atoms]
    findings.equal("problem.atoms", atoms, [(one.tokens, one.count) for one in lengths.classes])
    findings.equal("workload", document.workload, instance.workload.name)
    number = len(problem.strategies)
    if not lengths.strategies and findings.equal("plans: number", len(document.plans), number):
        return _checked_plans(document, instance, lengths, findings, clock)
    if lengths.strategies and findings.equal("strategies", number, len(lengths.strategies)):
        _check_measured(document, instance, lengths, findings)
    return []


def _check_files(document: LengthsDocument, above: Sequence[float], findings: Findings) -> None:
    """No plans, and how far times are above those that are known."""
    _check_above(document, above, findings)
    findings.equal("plans: number", len(document.plans), 0)
    findings.equal("switch_plans: number", len(document.switch_plans), 0)


def _check_above(document: LengthsDocument, above: Sequence[float], findings: Findings) -> None:
    if findings.equal("above: number", len(document.above), len(above)):
        for q, (found, known) in enumerate(zip(document.above, above, strict=True)):
            close = abs(found - known) <= SHARE_NOISE
            findings.require(close, f"above[{q}]", found, f"{known}, as recounted")


def _above(
    curve: ReplicasDocument, points: Sequence[Point], field: str, findings: Findings
) -> float:
    """By which share the times of rows are above the known ones at most; refused if below."""
    most = 0.0
    for square, tokens, time_ns in points:
        found = curve.per_square_ns * square + curve.per_token_ns * tokens + curve.per_row_ns
        allowed = f"at least {time_ns} for a row of {tokens} tokens, ns"
        findings.require(found >= time_ns - NOISE_NS, field, found, allowed)
        most = max(most, found / time_ns - 1)
    return most


def _check_measured(
    document: LengthsDocument, instance: Instance, lengths: Lengths, findings: Findings
) -> None:
    """Times of rows, classes and switches as the instance has them."""
    above, problem = list[float](), document.problem
    for q, (found, known) in enumerate(zip(problem.strategies, lengths.strategies, strict=True)):
        field, points = f"problem.strategies[{q}]", list[Point]()
        findings.equal(f"{field}.name", found.name, known.name)
        findings.equal(f"{field}.visit_ns", found.visit_ns, ceil_ns(known.per_visit_s))
        findings.equal(f"{field}.anchor_ns", found.anchor_ns, ceil_ns(known.per_step_s))
        if known.class_times_s:
            times = {tokens: ceil_ns(time_s) for tokens, time_s in known.class_times_s}
            expected = tuple(times.get(one.tokens) for one in lengths.classes)
            findings.equal(f"{field}.atoms_ns", found.atoms_ns, expected)
        elif _check_size(found, known, field, findings):
            points = [(n * n, n, time_ns) for n, time_ns in measured_rows(instance, known)]
        above.append(_above(found.replicas[0], points, field, findings) if points else 0.0)
    _check_files(document, above, findings)
    switches = {(one.leave, one.enter): one for one in lengths.switching}
    names = [one.name for one in lengths.strategies]
    for (i, a), (j, b) in product(enumerate(names), enumerate(names)):
        own = switches.get((a, b))
        both_s = (own.parameters_s, own.gradients_s) if own else (0.0, 0.0)
        both_ns = problem.parameters_ns[i][j], problem.gradients_ns[i][j]
        findings.equal(f"problem: switch from {a} to {b}", both_ns, tuple(map(ceil_ns, both_s)))
    findings.equal("problem.parameters_return", problem.parameters_return, False)
    findings.note("times of strategies and switches are those of the instance")


def _check_size(
    found: StrategyDocument, known: MeasuredStrategy, field: str, findings: Findings
) -> bool:
    """Whether replicas are those of the instance, all alike."""
    sizes = [(one.count, one.stages, one.longest_row) for one in found.replicas]
    own = known.data_parallel, known.pipeline_parallel, known.longest_row
    return findings.equal(f"{field}.replicas", sizes, [own])


class _Rows:
    """Costs of a plan with rows of any length, counted again."""

    def __init__(self, instance: Instance, lengths: Lengths, plan: Plan) -> None:
        self.instance, self.lengths, self.plan = instance, lengths, plan
        self.padded = lengths.rows == "padded"
        self.costs = cache(self._costs)

    def _costs(self, tokens: int, sequences: int = 1) -> PlanCosts:
        """Of rows that are so many sequences of so many tokens."""
        number = sum(one.micro_batches for one in self.plan.replicas)
        shape = self.plan.shape.model_copy(update={"micro_batch": sequences})
        plan = self.plan.model_copy(update={"shape": shape})
        return Recount(of_rows(self.instance, tokens, sequences * number), plan).costs()

    def sampled(self, longest: int) -> list[int]:
        """Lengths of rows, ascending, at which times are known; padded, all of them."""
        if self.padded:
            fitting = [one.tokens for one in self.lengths.classes if one.tokens <= longest]
            return fitting or [self.lengths.classes[0].tokens]
        shortest = ceil_div(longest, 2)
        steps = range(PACKED)
        return sorted({shortest + (longest - shortest) * n // (PACKED - 1) for n in steps})

    def points(self, replica: int, longest: int) -> Iterator[Point]:
        """What packed rows take on the slowest stage: one sequence, or many short ones."""
        for n in self.sampled(longest):
            yield n * n, n, self.slowest_ns(replica, n)
            each = ceil_div(n, MANY)
            yield 0, n // each * each, self.slowest_ns(replica, each, n // each)

    def slowest_ns(self, replica: int, tokens: int, sequences: int = 1) -> int:
        costs = self.costs(tokens, sequences)
        return int((costs.forward_ns + costs.backward_ns)[:, replica].max())


def _checked_plans(
    document: LengthsDocument,
    instance: Instance,
    lengths: Lengths,
    findings: Findings,
    clock: Clock,
) -> list[Plan]:
    """Every strategy by its plan."""
    above, plans = list[float](), list[Plan]()
    timed = _of_time(instance)
    for q, (one, file) in enumerate(zip(document.problem.strategies, document.plans, strict=True)):
        clock.check()
        plan = _plan_of(timed, one, file, f"plans[{q}]", findings)
        if plan is None:
            return []
        plans.append(plan)
        rows = _Rows(timed, lengths, plan)
        above.append(_check_strategy(one, rows, f"problem.strategies[{q}]", findings))
    _check_above(document, above, findings)
    findings.note(f"rows, reduction of gradients and optimizer of {len(plans)} strategies")
    return plans


def _of_time(instance: Instance) -> Instance:
    """The instance of plans whose micro-batches are rows: 1F1B on all nodes, whatever it takes."""
    search, zero = instance.search, instance.search.zero
    choices = {
        "idle_nodes": False,
        "micro_batch": (1,),
        "schedule": ("1f1b",),
        "micro_batches": "even",
        "zero": tuple(one for one in zero if one or 1 not in zero),
    }
    free = {"max_step_time_s": None, "max_cost_usd_per_step": None}
    return instance.model_copy(
        update={
            "search": search.model_copy(update=choices),
            "limits": instance.limits.model_copy(update=free),
            "objective": Objective(),
        }
    )


def _plan_of(
    timed: Instance, one: StrategyDocument, file: PlanDocument, field: str, findings: Findings
) -> Plan | None:
    """The plan of a strategy, if it is one of the instance with rows as long as they get."""
    if not one.replicas:
        findings.refuse(f"{field}: strategy {one.name}", "measured", "as many as a plan has")
        return None
    rows = [own.longest_row for own in one.replicas]
    longest, most = min(rows), max(rows)
    tokens = timed.workload.sequence_length
    if not findings.require(most <= tokens, f"{field}: longest_row", most, f"at most {tokens}"):
        return None
    number = sum(own.micro_batches for own in file.replicas)
    same = file.instance == of_rows(timed, longest, number)
    allowed = f"that of the file with rows of {longest} tokens"
    findings.require(same, f"{field}.instance", "another", allowed)
    for problem in verify_document(file, Effort(prove="nothing")).problems:
        findings.refuse(field, problem, "a plan file that verify accepts")
    if findings.num_problems:
        return None
    plan = checked_plan(PlanSpace(file.instance), file, Findings())
    findings.require(plan is not None, f"{field}.shape", None, "a plan")
    return plan


def _check_strategy(one: StrategyDocument, rows: _Rows, field: str, findings: Findings) -> float:
    """Room and times of all replicas, and what is once; the most that times are above."""
    shape, most, visit_ns = rows.plan.shape, 0.0, 0
    tps = "/".join(dict.fromkeys(str(own.tp) for own in shape.degrees_used))
    parts = [own for own in one.name.split(" (")[0].split(", ") if own[:3] in ("dp ", "tp ", "pp ")]
    findings.equal(f"{field}.name", parts, [f"dp {shape.dp}", f"tp {tps}", f"pp {shape.pp}"])
    curves = [own for own in one.replicas for _ in range(own.count)]
    if not findings.equal(f"{field}.replicas: number", len(curves), shape.dp):
        return 0.0
    fewest = min(own.micro_batches for own in rows.plan.replicas)
    text = f"{shape.pp}, as many as a stage may hold at once"
    findings.require(fewest >= shape.pp, f"{field}: micro-batches of its plan", fewest, text)
    for r, own in enumerate(curves):
        where = f"{field}.replicas, pipeline {r}"
        findings.equal(f"{where}: stages", own.stages, shape.pp)
        costs = rows.costs(own.longest_row)
        fits = bool((costs.memory_bytes <= costs.limit_bytes)[:, r].all())
        findings.require(fits, f"{where}: longest_row", own.longest_row, "rows that fit its GPUs")
        if rows.padded:
            known = tuple(rows.slowest_ns(r, n) for n in rows.sampled(own.longest_row))
            findings.equal(f"{where}: rows_ns", own.rows_ns, known)
        else:
            most = max(most, _above(own, [*rows.points(r, own.longest_row)], where, findings))
        visit_ns = max(visit_ns, _visit_ns(rows.costs(rows.sampled(own.longest_row)[0])))
    findings.equal(f"{field}.visit_ns", one.visit_ns, visit_ns)
    anchor_ns = max(map(int, costs.optimizer_ns + costs.gather_ns))
    findings.equal(f"{field}.anchor_ns", one.anchor_ns, anchor_ns)
    return most


def _visit_ns(costs: PlanCosts) -> int:
    """From the end of the last backward pass on the first stage until gradients are reduced."""
    backward, send, ends = costs.backward_ns.tolist(), costs.send_ns.tolist(), list[int]()
    for k, sync_ns in enumerate(costs.sync_ns.tolist()):
        before = (sum(backward[i][r] + send[i][r] for i in range(k)) for r in range(costs.shape.dp))
        ends.append(sync_ns - min(before))
    if costs.tied:
        ends[0] = ends[-1] = max(ends[0], ends[-1]) + costs.embedding_ns
    return max(ends)
