"""The envelope of the files that hetplan writes: their kind, schema version and digest.

A kind of files is a class of records. Its JSON is their fields; `digest` is the SHA-256 of all
others in canonical form, so that none can be changed unnoticed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_args

from pydantic import ValidationError

from formulations.errors import PlanError
from formulations.instance.documents import json_document, parse_document, parse_json, read_text
from formulations.instance.record import Line, Name, Record, shown
from formulations.instance.validation import problem, written_kind

HETPLAN_VERSION = "0.1.0"  # as in pyproject.toml, which a test compares


class Envelope(Record):
    """What every file has around its content.

    A kind states `schema_version`, and `kind`, its name in messages, which plans do not write; each
    is a literal with the one value that is read.
    """

    #: What such a file is and who writes it.
    written_by: ClassVar[str]
    #: How to write a new one.
    renewed_by: ClassVar[str]
    #: Logs of proofs, which are left out where the file is printed, unless they are asked for:
    #: fields, each with True or with those of what it holds.
    proof: ClassVar[Mapping[str, Any]] = {}

    hetplan_version: Name = HETPLAN_VERSION
    digest: Line = ""

    @classmethod
    def _literal(cls, field: str) -> Any:
        return get_args(cls.model_fields[field].annotation)[0]

    @classmethod
    def kind_name(cls) -> str:
        """What messages call this kind of files."""
        return str(cls._literal("kind")) if "kind" in cls.model_fields else "plan"

    @classmethod
    def version(cls) -> int:
        """The schema version that is read."""
        return int(cls._literal("schema_version"))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file at `path`. Raises InstanceError, one line with file:line:column."""
        return read_one_of((cls,), path)

    @classmethod
    def parse(cls, text: str, fields: dict[str, Any], name: str) -> Self:
        """What a file of this kind holds."""
        version = fields["schema_version"]
        if type(version) is not int or version != cls.version():
            where = json_document(text, name).where(("schema_version",))
            found = f"schema version {shown(version)}"
            raise PlanError(where, found, f"{cls.version()}; {cls.renewed_by}")
        for field, is_left_out in cls.proof.items():
            if is_left_out is True and field not in fields:
                allowed = f"{cls.written_by}, or by solve --json --proof"
                raise PlanError(f"{name}:1:1", f"no {field}", allowed)
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise problem(error, cls, json_document(text, name)) from None


E = TypeVar("E", bound=Envelope)


def read_one_of(kinds: Sequence[type[E]], path: Path) -> E:
    """What a file holds, which is of one of these kinds.

    Raises InstanceError, one line with file:line:column, also for a file of another kind.
    """
    names = [kind.kind_name() for kind in kinds]
    allowed = kinds[0].written_by if len(kinds) == 1 else joined_names(names)
    name, text = str(path), read_text(path, allowed)
    fields = parse_json(text, name, f"valid JSON: {allowed}")
    written = written_kind(fields)
    if written not in names or not isinstance(fields, dict):
        found = shown(fields) if written is None else f"a {written} file"
        raise PlanError(f"{name}:1:1", found, allowed)
    return kinds[names.index(written)].parse(text, fields, name)


def joined_names(kinds: Iterable[str]) -> str:
    """Such as "a plan, front or lengths file"."""
    *first, last = kinds
    return f"a {', '.join(first)} or {last} file" if first else f"a {last} file"


def fields_of(value: object, *names: str, **renamed: str) -> dict[str, Any]:
    """Some fields of a value, by their names, or by others."""
    fields = {**dict(zip(names, names, strict=True)), **renamed}
    return {name: getattr(value, field) for name, field in fields.items()}


def beside(package: str, name: str) -> str:
    """The text of a file that stands beside the code of a package, such as a template."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def table_beside(package: str, name: str) -> Any:
    """The same of YAML, as a table."""
    return parse_document(beside(package, name), name).value


def canonical_json(fields: dict[str, Any]) -> str:
    """Text that is equal for equal content."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(fields: dict[str, Any]) -> str:
    """SHA-256 of a document without its `digest` field."""
    rest = {key: value for key, value in fields.items() if key != "digest"}
    return hashlib.sha256(canonical_json(rest).encode()).hexdigest()


def sealed(document: E) -> E:
    """A document with its digest filled in."""
    return document.model_copy(update={"digest": digest(document.model_dump(mode="json"))})


def to_json(document: Envelope, *, proof: bool = True) -> str:
    """Readable JSON text of a document, digest last, with or without the logs of its proof."""
    fields = document.model_dump(mode="json", exclude=None if proof else dict(document.proof))
    fields["digest"] = fields.pop("digest")
    return json.dumps(fields, indent=1, allow_nan=False) + "\n"
