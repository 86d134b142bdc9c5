"""Checks of plans and proofs that share no code with models, engines or search.

None of them raises for a document that could be read.
"""

from collections.abc import Callable

from solver.document import PlanDocument
from solver.files import Envelope
from solver.fleet_document import FleetDocument
from solver.front_document import FrontDocument
from solver.lengths_document import LengthsDocument, SwitchDocument
from solver.verify.findings import Effort, Verification, instance_differences
from solver.verify.fleet_file import verify_fleet
from solver.verify.front_file import verify_front
from solver.verify.lengths_file import verify_lengths, verify_switch
from solver.verify.plan_file import verify_document

__all__ = [
    "Effort",
    "Verification",
    "instance_differences",
    "verified",
    "verify_document",
    "verify_fleet",
    "verify_front",
    "verify_lengths",
    "verify_switch",
]

_CHECKS: dict[type[Envelope], Callable[..., Verification]] = {
    PlanDocument: verify_document,
    FrontDocument: verify_front,
    FleetDocument: verify_fleet,
    SwitchDocument: verify_switch,
    LengthsDocument: verify_lengths,
}


def verified(document: Envelope, effort: Effort) -> Verification:
    """All checks of a file, whatever its kind."""
    return _CHECKS[type(document)](document, effort)
