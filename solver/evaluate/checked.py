"""A given plan as a plan file, checked as `verify` does."""

import re

from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.result import Result
from solver.verify import Effort, verify_document

#: Limits that a plan may break and yet be run, or tried to.
_LIMITS = re.compile(r"(replicas\[\d+\]\.stages\[\d+\]\.memory_bytes|instance\.limits\.\w+): ")


def checked(result: Result) -> tuple[PlanDocument, tuple[str, ...], tuple[str, ...]]:
    """The plan file, which limits the plan breaks, and what else is wrong with it."""
    document = build_document(result, SolveOptions())
    problems = verify_document(document, Effort(prove="nothing")).problems
    broken = tuple(one for one in problems if _LIMITS.match(one))
    return document, broken, tuple(one for one in problems if not _LIMITS.match(one))
