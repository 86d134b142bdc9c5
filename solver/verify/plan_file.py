"""All checks of one plan file, in order: digest, plan, figures, log, claims.

Every figure of a plan is held against what the definition gives, with the limits it must keep;
status, lower bound and gap, which speak of all plans, against the log of closed configs. Of that:
whether it is complete, what records claim, whether it holds.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product

import numpy as np

from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.instance.targets import TARGETS
from formulations.plan import Configuration, Plan
from formulations.space import PlanSpace, configs
from formulations.space.configurations import may_use
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.document import PlanDocument, config_counts
from solver.plan_figures import NO_FIGURES, plan_figures
from solver.result import (
    ConfigRecord,
    Proof,
    Reason,
    Status,
    Termination,
    longest_step_ns,
    objective_weight,
)
from solver.simulate import step_time_ns
from solver.verify.bounds import ANY_TIME_NS, Prover
from solver.verify.cascade import Claim, Verdict, quick_verdicts, verdicts
from solver.verify.feasibility import check_target, checked_plan
from solver.verify.findings import NOISE, NOISE_NEAR_ZERO, Effort, Findings, verification

#: Which proofs can stand behind which claim.
SEARCHES: tuple[Proof, ...] = ("enumeration", "cpsat", "milp")
BOUNDS: tuple[Proof, ...] = ("work", "filling", "packing", "pipeline")
PROOFS: dict[Reason, tuple[Proof, ...]] = {
    "infeasible": ("memory", "limit", *SEARCHES),
    "bounded": (*BOUNDS, *SEARCHES),
    "solved": SEARCHES,
    "open": (*BOUNDS, *SEARCHES),
}


def claim_of(instance: Instance, index: int, record: ConfigRecord) -> Claim:
    """No plan of the config within the limits on step time and cost is faster, a record claims."""
    longest_ns = longest_step_ns(instance, record.config.nodes_used)
    refused_ns = None if longest_ns is None else longest_ns + 1
    limits = [ns for ns in (record.bound_ns, refused_ns) if ns is not None]
    below_ns = min([*limits, ANY_TIME_NS])
    return Claim(index, record.config, below_ns, nothing_fits=record.bound_ns is None)


def is_sound(field: str, record: ConfigRecord, findings: Findings) -> bool:
    """Whether a record makes sense: proof, bound and reason go together."""
    allowed = PROOFS[record.reason]
    text = f"one of {', '.join(allowed)} for {record.reason}"
    sound = findings.require(record.proof in allowed, f"{field}.proof", record.proof, text)
    if record.reason == "infeasible":
        text = "none, as there is no plan"
        return findings.require(record.bound_ns is None, f"{field}.bound_ns", record.bound_ns, text)
    if record.bound_ns is None:
        findings.refuse(f"{field}.bound_ns", None, "a bound in ns")
        return False
    return sound


def settle_claims(
    prover: Prover,
    at_word: Sequence[Claim],
    to_prove: Sequence[Claim],
    effort: Effort,
    findings: Findings,
    refuse: Callable[[Verdict], None],
) -> tuple[Counter[str], set[int]]:
    """By what argument how many claims are shown, and the indices of those that are open.

    at_word: those that stand unless they are quickly shown. refuse: is told of a plan against one.
    """
    arguments, unproved = Counter[str](), {claim.index for claim in (*at_word, *to_prove)}
    try:
        for verdict in chain(quick_verdicts(prover, at_word), verdicts(prover, to_prove, effort)):
            unproved.discard(verdict.claim.index)
            if verdict.plan is not None:
                refuse(verdict)
            elif verdict.argument is not None:
                arguments[verdict.argument] += 1
    except KeyboardInterrupt:
        findings.note("nothing more: interrupted")
    return arguments, unproved


def check_records(
    prover: Prover, records: Sequence[tuple[int, ConfigRecord]], findings: Findings, effort: Effort
) -> None:
    """Proves what the records claim, or refuses it with a plan; the rest is not proved."""
    instance = prover.instance
    sound = {i: r for i, r in records if is_sound(f"closed_configs[{i}]", r, findings)}
    if effort.prove == "nothing":
        return
    at_word, to_prove = list[Claim](), list[Claim]()
    for i, record in sound.items():
        believed = effort.prove == "quick" and record.proof in SEARCHES
        (at_word if believed else to_prove).append(claim_of(instance, i, record))

    def refuse(verdict: Verdict) -> None:
        """With the layout of the plan."""
        plan, record = verdict.plan, sound[verdict.claim.index]
        assert plan is not None
        name, claimed = "bound_ns", str(record.bound_ns)
        if record.bound_ns is None:
            name, claimed = "reason", "infeasible"
        nodes = ", ".join(instance.cluster.node_names[node] for node in plan.node_order)
        layers = ", ".join(f"{a}-{b - 1}" for a, b in (s.layers for s in plan.replicas[0].stages))
        shares = ", ".join(str(replica.micro_batches) for replica in plan.replicas)
        text = f"nodes {nodes}; layers {layers}; micro-batches {shares}"
        bound = f"a bound of at most {verdict.step_time_ns}, the step time of a plan: {text}"
        findings.refuse(f"closed_configs[{verdict.claim.index}].{name}", claimed, bound)

    arguments, unproved = settle_claims(prover, at_word, to_prove, effort, findings, refuse)
    findings.unproved += sorted(unproved)
    kinds = ", ".join(f"{argument} {n}" for argument, n in sorted(arguments.items()))
    findings.note(
        f"log of {len(records)} configurations: {arguments.total()} proved again"
        f"{f' ({kinds})' if kinds else ''}, {len(unproved)} not"
    )


#: Missing or surplus configurations that are named one by one.
EXAMPLES = 3


@dataclass(frozen=True)
class LogSummary:
    """What the log says of the whole plan space.

    bounds: lower bound of the objective of every record that leaves a plan possible.
    num_open: configurations that are not closed.
    """

    bounds: tuple[float, ...]
    num_open: int


def check_log(
    space: PlanSpace, document: PlanDocument, findings: Findings, effort: Effort
) -> LogSummary | None:
    """Checks the log of a document; None if it has none, so that nothing is proved."""
    findings.compare("configs", document.configs, config_counts(document.closed_configs))
    if not document.closed_configs and any(True for _ in configs(space.instance)):
        findings.note("no log of closed configurations: nothing is proved of other plans")
        return None
    prover = Prover(space)
    listed = _check_coverage(space, document, findings)
    log = enumerate(document.closed_configs)
    records = [(i, record) for i, record in log if record.config in listed]
    check_records(prover, records, findings, effort)
    weighted = [(r.bound_ns, r.config) for _, r in records if r.bound_ns is not None]
    return LogSummary(
        bounds=tuple(
            bound * objective_weight(space.instance, config)
            for bound, config in weighted
            if may_use(space.instance, config.nodes_used)
        ),
        num_open=sum(record.reason == "open" for record in document.closed_configs),
    )


def _check_coverage(
    space: PlanSpace, document: PlanDocument, findings: Findings
) -> Collection[Configuration]:
    """Every config once; returns those of the plan space, up to one more than there are records."""
    number = len(document.closed_configs)
    # a file may ask for more than can be listed
    expected = Counter(islice(configs(space.instance), number + 1))
    closed = Counter(record.config for record in document.closed_configs)
    surplus = closed - expected if expected.total() <= number else Counter[Configuration]()
    for what, wrong in (
        ("missing configurations", expected - closed),
        ("closed twice or outside", surplus),
    ):
        names = sorted(map(repr, wrong))
        more = f" and {len(names) - EXAMPLES} more" if len(names) > EXAMPLES else ""
        shown, text = "; ".join(names[:EXAMPLES]), "every configuration of the plan space once"
        findings.require(not names, f"closed_configs: {what}", f"{shown}{more}", text)
    return expected.keys()


#: Those that are checked before there are costs, see `feasibility`.
LAYOUT = {"config", "node_order", "micro_batches", "layers", "recomputed"}
LAYOUT |= {"node", "gpus", "degrees"}


def check_figures(document: PlanDocument, plan: Plan, findings: Findings) -> int:
    """Compares every figure of the plan with its own; returns the step time in ns.

    Raises ValueError for negative times, which an instance with absurd figures has.
    """
    costs = plan_costs(document.instance, plan)
    tails = (costs.sync_ns, costs.gather_ns, costs.optimizer_ns, costs.embedding_ns)
    if min(int(np.min(times)) for times in tails) < 0:
        raise ValueError("times below 0")
    time_ns = step_time_ns(costs)
    figures = plan_figures(document.instance, plan, costs, time_ns)
    for name in sorted(figures.keys() - LAYOUT):
        findings.compare(name, getattr(document, name), figures[name], LAYOUT)
    for k, r in product(range(plan.config.pp), range(plan.config.dp)):
        need, room = int(costs.memory_bytes[k, r]), int(costs.limit_bytes[k, r])
        findings.at_most(f"replicas[{r}].stages[{k}].memory_bytes", need, room)
    limited = {
        "max_step_time_s": seconds(time_ns),
        "max_cost_usd_per_step": figures["cost_usd_per_step"],
    }
    for name, value in limited.items():
        limit = getattr(document.instance.limits, name)
        if limit is not None:
            findings.at_most(f"instance.limits.{name}", value, limit * (1 + NOISE))
    findings.note(f"step time, memory and {findings.num_figures} figures of the plan")
    return time_ns


def check_claims(
    document: PlanDocument,
    plan: Plan | None,
    time_ns: int,
    log: LogSummary | None,
    findings: Findings,
) -> None:
    """Status, bound and gap of a document; `time_ns` is the step time of its plan, if any."""
    instance, asked = document.instance, document.requested_gap
    findings.equal("minimize", document.minimize, instance.objective.minimize)
    findings.require(0 <= asked < 1, "requested_gap", asked, "0 or more, below 1")
    closed = document.termination is Termination.CLOSED
    findings.equal("termination is closed", closed, log is not None and not log.num_open)
    bounds = () if log is None else log.bounds
    if plan is None:
        # INFEASIBLE if no record leaves a plan possible, else UNKNOWN
        impossible = log is not None and not bounds
        status = Status.INFEASIBLE if impossible else Status.UNKNOWN
        claim = f"{status.value}, from the log"
        timed = instance.objective.minimize == "step_time"
        bound_ns = min(bounds, default=None) if timed else None
    else:
        weight = objective_weight(instance, plan.config)
        objective = time_ns * weight
        bound = None if log is None else min((*bounds, objective))
        # of the step time at the rent of the plan; none if money is free
        bound_ns = None if bound is None or not weight else bound / weight
        gap = None if bound is None else (objective - bound) / objective if objective else 0.0
        findings.close("gap", document.gap, gap)
        proved = gap is not None and gap <= asked + NOISE_NEAR_ZERO
        status = Status.OPTIMAL if proved else Status.FEASIBLE
        claim = f"{status.value}: gap {gap}, requested {asked}"
        text = f"{document.status.value} for {TARGETS[document.target].name}"
        findings.note(text if gap is None else f"{text}, gap {gap:.3%}")
        closing = objective * (1 - asked) * (1 - NOISE)
        for i, record in enumerate(document.closed_configs):
            field, record_ns = f"closed_configs[{i}]", record.bound_ns
            if record.config == plan.config:
                text = f"a bound of at most {time_ns}, the plan's own"
                holds = record_ns is not None and record_ns <= time_ns
                findings.require(holds, field, f"{record.reason}, bound {record_ns}", text)
            if record.reason == "bounded" and record_ns is not None:
                # closed by a bound only within the requested gap of the plan
                reaches = record_ns * objective_weight(instance, record.config) >= closing
                text = f"open, as its bound is below {closing}"
                findings.require(reaches, f"{field}.reason", "bounded", text)
    findings.require(document.status is status, "status", document.status.value, claim)
    bound_s = None if bound_ns is None else bound_ns / NANOSECONDS_PER_SECOND
    findings.close("lower_bound_s", document.lower_bound_s, bound_s)
    if document.status in (Status.OPTIMAL, Status.INFEASIBLE):
        num_open = "all" if log is None else log.num_open
        findings.require(
            not num_open, "status", f"{num_open} configurations open", "all configurations closed"
        )


@verification
def verify_document(document: PlanDocument, findings: Findings, effort: Effort) -> None:
    """Checks every constraint, figure and claim of a plan file against its own instance."""
    space = PlanSpace(document.instance)
    check_target(document, findings)
    plan, time_ns = checked_plan(space, document, findings), 0
    if plan is not None:
        time_ns = check_figures(document, plan, findings)
    if document.config is None:
        for name in (*NO_FIGURES, "gap"):
            value, text = getattr(document, name), "nothing, as there is no plan"
            findings.require(value is None or value == (), name, value, text)
    log = check_log(space, document, findings, effort)
    if plan is not None or document.config is None:
        check_claims(document, plan, time_ns, log, findings)
