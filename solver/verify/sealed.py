"""What all sealed files share: the digest, and content that may be anything that could be read."""

from collections.abc import Callable
from typing import TypeVar

from formulations.errors import InstanceError
from solver.document import PlanDocument, digest
from solver.fleet_document import FleetDocument
from solver.front_document import FrontDocument
from solver.lengths_document import LengthsDocument
from solver.switch_document import SwitchDocument
from solver.verify.findings import Findings, Verification

D = TypeVar("D", PlanDocument, FleetDocument, FrontDocument, LengthsDocument, SwitchDocument)


def verification(document: D, check: Callable[[D, Findings], None]) -> Verification:
    """The digest of a document and `check` of its content, which may fail on absurd figures."""
    findings = Findings()
    found, expected = document.digest, digest(document.model_dump(mode="json"))
    findings.require(found == expected, "digest", found, f"{expected}, that of the other fields")
    findings.note("digest")
    try:
        check(document, findings)
    except (ArithmeticError, InstanceError, LookupError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        findings.refuse("instance", f"figures without a cost ({reason})", "usable figures")
    return findings.verification()
