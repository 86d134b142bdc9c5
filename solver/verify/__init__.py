"""Checks of plans and proofs that share no code with models, engines or search.

None of them raises for a document that could be read.
"""

from solver.verify.cascade import Effort
from solver.verify.findings import Verification, instance_differences
from solver.verify.fleet_file import verify_fleet
from solver.verify.front_file import verify_front
from solver.verify.lengths_file import verify_lengths, verify_switch
from solver.verify.plan_file import verify_document

__all__ = [
    "Effort",
    "Verification",
    "instance_differences",
    "verify_document",
    "verify_fleet",
    "verify_front",
    "verify_lengths",
    "verify_switch",
]
