"""The log of closed configs: whether it is complete, what records claim, whether it holds."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from formulations.instance import Instance
from formulations.plan import Configuration
from formulations.space import PlanSpace
from formulations.space.configurations import may_use
from solver.document import PlanDocument, config_counts
from solver.result import ConfigRecord, Proof, Reason, longest_step_ns, objective_weight
from solver.verify.bounds import ANY_TIME_NS, Prover
from solver.verify.cascade import Claim, Effort, Verdict, quick_verdicts, verdicts
from solver.verify.findings import Findings

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
            if verdict.plan is not None:
                refuse(verdict)
            elif verdict.argument is not None:
                arguments[verdict.argument] += 1
            if not verdict.open:
                unproved.discard(verdict.claim.index)
    except KeyboardInterrupt:
        findings.note("nothing more: interrupted")
    return arguments, unproved


def check_records(
    prover: Prover,
    records: Sequence[tuple[int, ConfigRecord]],
    findings: Findings,
    effort: Effort,
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
    if not document.closed_configs and any(True for _ in space.configs()):
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
    expected = Counter(islice(space.configs(), number + 1))
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
