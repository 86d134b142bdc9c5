"""Forged plan files: fields changed, digest made anew."""

import json
from typing import Any

from solver.document import PlanDocument, sealed, shape_counts


def change(fields: Any, path: str, value: object) -> None:
    """Sets the value at a path such as "replicas.0.stages.1"."""
    *parents, last = path.split(".")
    for name in parents:
        fields = fields[int(name) if isinstance(fields, list) else name]
    fields[int(last) if isinstance(fields, list) else last] = value


def forged(document: PlanDocument, changes: dict[str, Any]) -> PlanDocument:
    """A copy with other values, by path, as a forger would make it.

    Digest and counts of closed shapes fit the other values.
    """
    fields = document.model_dump(mode="json")
    for path, value in changes.items():
        change(fields, path, value)
    changed = PlanDocument.model_validate_json(json.dumps(fields))
    return sealed(changed.but(shapes=shape_counts(changed.closed_shapes)))
