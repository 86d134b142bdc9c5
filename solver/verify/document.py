"""All checks of one plan file, in order: digest, plan, figures, log, claims."""

from formulations.plan import Plan
from solver.document import PlanDocument
from solver.verify.certificate import check_log
from solver.verify.claims import check_claims
from solver.verify.feasibility import checked_plan
from solver.verify.figures import check_absent, check_figures
from solver.verify.findings import Findings, Verification
from solver.verify.sealed import verification
from solver.verify.space import PlanSpace


def verify_document(document: PlanDocument) -> Verification:
    """Checks every constraint, figure and claim of a plan file against its own instance.

    Uses no code of models, engines or search. Never raises for a document that could be read.
    """
    return verification(document, _check_content)


def _check_content(document: PlanDocument, findings: Findings) -> None:
    space = PlanSpace(document.instance)
    plan: Plan | None = None
    time_ns = None
    if document.shape is None:
        check_absent(document, findings)
    else:
        plan = checked_plan(space, document, findings)
        time_ns = check_figures(document, plan, findings) if plan else None
    log = check_log(space, document, findings)
    if document.shape is None or plan is not None:
        check_claims(document, plan, time_ns, log, findings)
