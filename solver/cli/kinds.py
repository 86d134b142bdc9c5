"""The kinds of files that hetplan writes, one row each: how they are checked, shown and drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from rich.console import RenderableType

from formulations.errors import PlannerError
from solver.cli.files import refuse_changed, refuse_planless, write_text
from solver.cli.fleets import fleet_report
from solver.cli.terminal import print_report, say
from solver.document import PlanDocument
from solver.files import Envelope, joined_names, read_one_of, to_json
from solver.fleet_document import FleetDocument
from solver.front_document import FrontDocument
from solver.lengths_document import LengthsDocument, SwitchDocument
from solver.report.front import front_report
from solver.report.front_picture import front_page, front_picture
from solver.report.html.page import html_page
from solver.report.lengths import lengths_page, step_text, switch_page, switch_text
from solver.report.step import chrome_trace
from solver.report.text import plan_text

if TYPE_CHECKING:
    from formulations.instance.instance import Family
    from solver.verify import Effort, Verification

Part = Literal["picture", "page", "trace", "details"]

D = TypeVar("D", bound=Envelope)


@dataclass(frozen=True)
class Kind(Generic[D]):
    """What commands do with one kind of files; None: they do not.

    verify: the name of the check in `solver.verify`, which is slow to import. picture: SVG; page:
    HTML; trace: JSON for Perfetto; details: more text. claims: whether it has a bound that only
    `verify` proves.
    """

    file: type[D]
    verify: str
    text: Callable[[D], list[RenderableType]]
    picture: Callable[[D], str] | None = None
    page: Callable[..., str] | None = None
    trace: Callable[[D], str] | None = None
    details: Callable[[D], list[RenderableType]] | None = None
    claims: Callable[[D], bool] = lambda _: False


KINDS: tuple[Kind[Any], ...] = (
    Kind(
        PlanDocument,
        "verify_document",
        plan_text,
        page=html_page,
        trace=chrome_trace,
        details=partial(plan_text, details=True),
        claims=lambda document: bool(document.closed_configs),
    ),
    Kind(FrontDocument, "verify_front", front_report, front_picture, front_page),
    Kind(FleetDocument, "verify_fleet", fleet_report),
    Kind(SwitchDocument, "verify_switch", switch_text, page=switch_page),
    Kind(LengthsDocument, "verify_lengths", step_text, page=lengths_page, claims=lambda _: True),
)


def verified(document: Envelope, effort: "Effort") -> "Verification":
    """The document checked by the verifier of its kind."""
    import solver.verify

    kind = next(row for row in KINDS if row.file is type(document))
    verification: Verification = getattr(solver.verify, kind.verify)(document, effort)
    return verification


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


def part_of(kind: Kind[Any], part: Part, option: str) -> Callable[..., Any]:
    """What an option asks for of a kind of files. Raises PlannerError if they have no such part."""
    made: Callable[..., Any] | None = getattr(kind, part)
    if made is None:
        allowed = joined_names([row.file.kind_name() for row in KINDS if getattr(row, part)])
        raise PlannerError(f"{option}: a {kind.file.kind_name()} file; allowed: {allowed}")
    return made


def page_of(
    kind: Kind[Any], document: Any, file: str, beside: tuple[PlanDocument, str] | None = None
) -> str:
    """The page of a file, of a plan beside another one. PlannerError if it has none."""
    write = part_of(kind, "page", "report")
    if isinstance(document, PlanDocument):
        return html_page(document, file, beside)
    if beside is not None:
        found = f"a {kind.file.kind_name()} file beside {beside[1]}"
        raise PlannerError(f"{file}: {found}; allowed: a plan file beside another one")
    return str(write(document))


def read_kind(path: Path) -> tuple[Kind[Any], Any]:
    """The row of a file, and what it holds. Raises InstanceError for what is no such file."""
    document = read_one_of([row.file for row in KINDS], path)
    return next(row for row in KINDS if row.file is type(document)), document


def deliver(
    document: Envelope, out: Path | None, *, as_json: bool, svg: Path | None = None
) -> None:
    """Writes a file and its picture where they are asked for, and prints it, as JSON or in words.

    It is printed as well where it cannot be written; as JSON without the logs of its proof.
    """
    kind = next(row for row in KINDS if row.file is type(document))
    try:
        if out is not None:
            write_text(out, to_json(document))
        if svg is not None and kind.picture is not None:
            write_text(svg, kind.picture(document))
    finally:
        if as_json:
            say(to_json(document, proof=False), end="")
        else:
            print_report(kind.text(document))


def checked_kind(path: Path) -> tuple[Kind[Any], Any]:
    """As `read_kind`, checked but for what takes long to prove; PlanError if it was changed."""
    from solver.verify import Effort

    kind, document = read_kind(path)
    if isinstance(document, PlanDocument):
        refuse_planless(path, document)
    refuse_changed(path, verified(document, Effort(prove="nothing")))
    return kind, document
