"""Forged plan files: fields changed, digest made anew."""

import json
from typing import Any

from solver.document import PlanDocument, sealed


def forged(document: PlanDocument, changes: dict[str, Any]) -> PlanDocument:
    """A copy with a fitting digest and other values, by path such as "replicas.0.stages.1"."""
    fields = document.model_dump(mode="json")
    for path, value in changes.items():
        *parents, last = path.split(".")
        at: Any = fields
        for name in parents:
            at = at[int(name) if isinstance(at, list) else name]
        at[int(last) if isinstance(at, list) else last] = value
    return sealed(PlanDocument.model_validate_json(json.dumps(fields)))
