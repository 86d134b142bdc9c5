"""The log of closed shapes: that it is complete, that its proofs hold, and what they prove."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice

from formulations.plan import Shape
from formulations.space import Nodes, PlanSpace, may_use
from solver.document import PlanDocument
from solver.result import objective_weight
from solver.verify.bounds import Prover
from solver.verify.cascade import Effort
from solver.verify.findings import Findings
from solver.verify.records import check_records

#: Missing or surplus shapes that are named one by one.
EXAMPLES = 3


@dataclass(frozen=True)
class LogSummary:
    """What the log says of the whole plan space.

    bounds: lower bound of the objective of every record that leaves a plan possible.
    num_open: shapes that are not closed.
    """

    bounds: tuple[float, ...]
    num_open: int


def check_log(
    space: PlanSpace, document: PlanDocument, findings: Findings, effort: Effort
) -> LogSummary | None:
    """Checks the log of a document; None if it has none, so that nothing is proved."""
    _check_counts(document, findings)
    if not document.closed_shapes and space_has_shapes(space):
        findings.note("no log of closed shapes: nothing is proved of other plans")
        return None
    prover = Prover(space)
    known = _check_coverage(space, document, findings)
    records = [
        (i, record) for i, record in enumerate(document.closed_shapes) if record.shape in known
    ]
    check_records(prover, records, findings, effort)
    weighted = [(r.bound_ns, r.shape) for _, r in records if r.bound_ns is not None]
    return LogSummary(
        bounds=tuple(
            bound * objective_weight(space.instance, shape)
            for bound, shape in weighted
            if may_use(space.instance, shape.nodes_used)
        ),
        num_open=sum(record.reason == "open" for record in document.closed_shapes),
    )


def space_has_shapes(space: PlanSpace) -> bool:
    """Whether the plan space holds any shape at all."""
    return any(True for _ in space.shapes())


def _check_coverage(
    space: PlanSpace, document: PlanDocument, findings: Findings
) -> Collection[Shape]:
    """Every shape once; returns those of the plan space, up to one more than there are records."""
    number = len(document.closed_shapes)
    # a file may ask for more than can be listed
    expected = Counter(islice(space.shapes(), number + 1))
    found = Counter(record.shape for record in document.closed_shapes)
    _name_some("closed_shapes: missing shapes", (expected - found).keys(), findings)
    if expected.total() <= number:
        _name_some("closed_shapes: closed twice or outside", (found - expected).keys(), findings)
    return expected.keys()


def _name_some(field: str, items: Iterable[Shape | Nodes], findings: Findings) -> None:
    names = sorted(map(repr, items))
    shown = "; ".join(names[:EXAMPLES])
    more = f" and {len(names) - EXAMPLES} more" if len(names) > EXAMPLES else ""
    findings.require(not names, field, f"{shown}{more}", "every shape of the plan space once")


def _check_counts(document: PlanDocument, findings: Findings) -> None:
    """How many shapes the document says were closed how, against its log."""
    closed = [record.proof for record in document.closed_shapes if record.reason != "open"]
    total, claimed = len(document.closed_shapes), document.shapes
    findings.equal("shapes.total", claimed.total, total)
    findings.equal("shapes.open", claimed.open, total - len(closed))
    findings.equal("shapes.closed_by", claimed.closed_by, dict(Counter(closed)))
