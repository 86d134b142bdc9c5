"""Checks of plans and proofs that share no code with models or search."""

from solver.verify.comparison import compare_instance, instance_differences
from solver.verify.document import verify_document
from solver.verify.findings import Verification
from solver.verify.fleet import verify_fleet

__all__ = [
    "Verification",
    "compare_instance",
    "instance_differences",
    "verify_document",
    "verify_fleet",
]
