"""All checks of one plan file, in order: digest, plan, figures, log, claims."""

from formulations.plan import Plan
from formulations.space import PlanSpace
from solver.document import PlanDocument
from solver.verify.cascade import Effort
from solver.verify.certificate import check_log
from solver.verify.claims import check_claims
from solver.verify.feasibility import check_target, checked_plan
from solver.verify.figures import check_absent, check_figures
from solver.verify.findings import Findings, Verification, verification


def verify_document(document: PlanDocument, effort: Effort | None = None) -> Verification:
    """Checks every constraint, figure and claim of a plan file against its own instance.

    Uses no code of models, engines or search. Never raises for a document that could be read.
    """
    asked = effort or Effort()
    return verification(document, lambda findings: _check_content(document, findings, asked))


def _checked_plan(
    space: PlanSpace, document: PlanDocument, findings: Findings
) -> tuple[Plan, int] | None:
    """The plan of a document and its step time in ns; None without one that can be judged."""
    if document.shape is None:
        check_absent(document, findings)
        return None
    plan = checked_plan(space, document, findings)
    return (plan, check_figures(document, plan, findings)) if plan else None


def _check_content(document: PlanDocument, findings: Findings, effort: Effort) -> None:
    space = PlanSpace(document.instance)
    check_target(document, findings)
    found = _checked_plan(space, document, findings)
    log = check_log(space, document, findings, effort)
    if found is not None:
        check_claims(document, *found, log, findings)
    elif document.shape is None:
        check_claims(document, None, None, log, findings)
