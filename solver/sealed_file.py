"""Files of other kinds than plan files: JSON objects that name their kind, version and digest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from formulations.errors import PlanError
from formulations.instance.json_document import json_document, parse_json
from formulations.instance.quantities import shown
from formulations.instance.record import Record
from formulations.instance.text_files import read_text
from formulations.instance.validation import problem
from solver.document import PROOF

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class SealedFile(Generic[R]):
    """One kind of files. allowed: what it is and who writes it; again: how to write a new one."""

    model: type[R]
    kind: str
    version: int
    allowed: str
    again: str

    def kind_of(self, path: Path) -> str | None:
        """The kind that a file names, this or another; None: none, as plans do.

        Either may still be unreadable.
        """
        allowed = f"a plan file, or {self.allowed}"
        fields = self._fields(read_text(path, allowed), path, allowed)
        kind = fields.get("kind") if isinstance(fields, dict) else None
        return kind if isinstance(kind, str) else None

    def read(self, path: Path) -> R:
        """The file at `path`. Raises InstanceError, one line with file:line:column."""
        name, text = str(path), read_text(path, self.allowed)
        fields = self._fields(text, path, self.allowed)
        if not isinstance(fields, dict):
            raise PlanError(f"{name}:1:1", shown(fields), self.allowed)
        if fields.get("kind") != self.kind:
            what = "a plan written by solve" if PROOF in fields else "other JSON"
            raise PlanError(f"{name}:1:1", f"no {self.kind}, but {what}", self.allowed)
        version = fields.get("schema_version")
        if type(version) is not int or version != self.version:
            where = json_document(text, name).where(("schema_version",))
            raise PlanError(
                where, f"schema version {shown(version)}", f"{self.version}; {self.again}"
            )
        try:
            return self.model.model_validate_json(text)
        except ValidationError as error:
            raise problem(error, self.model, json_document(text, name)) from None

    def _fields(self, text: str, path: Path, allowed: str) -> Any:
        return parse_json(text, str(path), f"valid JSON: {allowed}")
