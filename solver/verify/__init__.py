"""Checks of plans and proofs that share no code with models or search."""

from solver.verify.cascade import Effort
from solver.verify.comparison import instance_differences
from solver.verify.document import verify_document
from solver.verify.findings import Verification
from solver.verify.fleet import verify_fleet

__all__ = [
    "Effort",
    "Verification",
    "instance_differences",
    "verify_document",
    "verify_fleet",
]
