"""Files that hetplan writes: JSON objects with their kind, schema version and digest."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import ValidationError

from formulations.errors import PlanError
from formulations.instance.json_document import json_document, parse_json, written_kind
from formulations.instance.record import Record, shown
from formulations.instance.text_files import read_text
from formulations.instance.validation import problem

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class SealedFile(Generic[R]):
    """One kind of files. allowed: what it is and who writes it; again: how to write a new one.

    proof: a field that is left out where the file is printed, unless it is asked for.
    """

    model: type[R]
    allowed: str
    again: str
    proof: str | None = None

    @property
    def kind(self) -> str:
        """Its name in messages; plans do not write it."""
        return str(self._only("kind")) if "kind" in self.model.model_fields else "plan"

    @property
    def version(self) -> int:
        """The schema version that is read."""
        return int(self._only("schema_version"))

    def _only(self, field: str) -> Any:
        return get_args(self.model.model_fields[field].annotation)[0]

    def read(self, path: Path) -> R:
        """The file at `path`. Raises InstanceError, one line with file:line:column."""
        return read_one_of((self,), path)[1]

    def parse(self, text: str, fields: dict[str, Any], name: str) -> R:
        """What a file of this kind holds."""
        version = fields["schema_version"]
        if type(version) is not int or version != self.version:
            where = json_document(text, name).where(("schema_version",))
            found = f"schema version {shown(version)}"
            raise PlanError(where, found, f"{self.version}; {self.again}")
        if self.proof is not None and self.proof not in fields:
            allowed = f"{self.allowed}, or by solve --json --proof"
            raise PlanError(f"{name}:1:1", f"no {self.proof}", allowed)
        try:
            return self.model.model_validate_json(text)
        except ValidationError as error:
            raise problem(error, self.model, json_document(text, name)) from None


def read_one_of(files: Sequence[SealedFile[R]], path: Path) -> tuple[SealedFile[R], R]:
    """The kind of a file, and what it holds.

    Raises InstanceError, one line with file:line:column, also for a file of another kind.
    """
    allowed = files[0].allowed if len(files) == 1 else joined_names([one.kind for one in files])
    name, text = str(path), read_text(path, allowed)
    fields = parse_json(text, name, f"valid JSON: {allowed}")
    kind = written_kind(fields)
    own = next((one for one in files if one.kind == kind), None)
    if own is None or not isinstance(fields, dict):
        found = shown(fields) if kind is None else f"a {kind} file"
        raise PlanError(f"{name}:1:1", found, allowed)
    return own, own.parse(text, fields, name)


def joined_names(kinds: Sequence[str]) -> str:
    """Such as "a plan, front or lengths file"."""
    *most, last = kinds
    return f"a {', '.join(most)} or {last} file" if most else f"a {last} file"
