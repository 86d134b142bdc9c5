"""The kinds of files that hetplan writes, one row each: how they are checked, shown and drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from formulations.errors import PlannerError
from solver.cli.files import write_text
from solver.cli.fleets import fleet_report
from solver.cli.terminal import print_report, say
from solver.document import PlanDocument
from solver.files import Envelope, joined_names, to_json
from solver.fleet_document import FleetDocument
from solver.front_document import FrontDocument
from solver.lengths_document import LengthsDocument, SwitchDocument
from solver.report.front import front_report
from solver.report.front_picture import front_page, front_picture
from solver.report.html.page import html_page
from solver.report.layout import Parts
from solver.report.lengths import lengths_page, step_text, switch_page, switch_text
from solver.report.step import chrome_trace
from solver.report.text import plan_text

if TYPE_CHECKING:
    from formulations.instance.instance import Family

#: What some kinds have: an SVG, an HTML file, JSON for Perfetto, more text.
Part = Literal["picture", "page", "trace", "details"]


@dataclass(frozen=True)
class Kind:
    """What commands do with one kind of files.

    text: what is printed of it. claims: whether it has a bound that only `verify` proves.
    """

    text: Callable[[Any], Parts]
    parts: Mapping[Part, Callable[..., Any]] = field(default_factory=dict)
    claims: Callable[[Any], bool] = lambda _: False


_PLAN_PARTS: dict[Part, Callable[..., Any]] = {
    "page": html_page,
    "trace": chrome_trace,
    "details": partial(plan_text, details=True),
}
KINDS: dict[type[Envelope], Kind] = {
    PlanDocument: Kind(plan_text, _PLAN_PARTS, lambda document: bool(document.closed_configs)),
    FrontDocument: Kind(front_report, {"picture": front_picture, "page": front_page}),
    FleetDocument: Kind(fleet_report),
    SwitchDocument: Kind(switch_text, {"page": switch_page}),
    LengthsDocument: Kind(step_text, {"page": lengths_page}, lambda _: True),
}


def differences(document: Any, family: "Family") -> Sequence[str]:
    """What is wrong with a file if it should be for these clusters, or for the one there is."""
    from solver.switching.quickest import unlike
    from solver.verify import instance_differences

    instance = family.instance
    if isinstance(document, SwitchDocument):
        stated = document.workload, document.cluster
        return unlike(stated, (instance.workload, instance.cluster))
    if not isinstance(document, FrontDocument):
        if document.instance is None:
            return ["instance: found none, expected that of the file"]
        return instance_differences(document.instance, instance)
    problems = instance_differences(document.family.instance, instance)
    if document.aim != "subsets" and (fewest := document.family.fewest) != family.fewest:
        problems += (f"fewest nodes: found {fewest}, expected {family.fewest}",)  # of every group
    return problems


def part_of(document: Envelope, part: Part, option: str) -> Any:
    """What an option asks for of a file. Raises PlannerError if its kind has no such part."""
    parts = KINDS[type(document)].parts
    if part not in parts:
        having = (file.kind_name() for file, kind in KINDS.items() if part in kind.parts)
        allowed = joined_names(having)
        raise PlannerError(f"{option}: a {document.kind_name()} file; allowed: {allowed}")
    return parts[part](document)


def page_of(document: Envelope, file: str, beside: tuple[PlanDocument, str] | None = None) -> str:
    """The page of a file, of a plan beside another one. PlannerError if it has none."""
    if isinstance(document, PlanDocument):
        return html_page(document, file, beside)
    page = part_of(document, "page", "report")
    if beside is not None:
        found = f"a {document.kind_name()} file beside {beside[1]}"
        raise PlannerError(f"{file}: {found}; allowed: a plan file beside another one")
    return str(page)


def deliver(
    document: Envelope, out: Path | None, *, as_json: bool, svg: Path | None = None
) -> None:
    """Writes a file and its picture where they are asked for, and prints it, as JSON or in words.

    It is printed as well where it cannot be written; as JSON without the logs of its proof.
    """
    try:
        if out is not None:
            write_text(out, to_json(document))
        if svg is not None:
            write_text(svg, part_of(document, "picture", "--svg"))
    finally:
        if as_json:
            say(to_json(document, proof=False), end="")
        else:
            print_report(KINDS[type(document)].text(document))
