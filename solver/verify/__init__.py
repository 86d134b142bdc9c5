"""Checks of plans and proofs that share no code with models or search."""

from solver.verify.comparison import compare_instance
from solver.verify.document import verify_document
from solver.verify.findings import Verification

__all__ = ["Verification", "compare_instance", "verify_document"]
