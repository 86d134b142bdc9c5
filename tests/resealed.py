"""Forged plan files: fields changed, digest made anew."""

import json
from typing import Any

from solver.document import PlanDocument, sealed, shape_counts


def forged(document: PlanDocument, changes: dict[str, Any]) -> PlanDocument:
    """A copy with other values, by path such as "replicas.0.stages.1", as a forger would make it.

    Digest and counts of closed shapes fit the other values.
    """
    fields = document.model_dump(mode="json")
    for path, value in changes.items():
        *parents, last = path.split(".")
        at: Any = fields
        for name in parents:
            at = at[int(name) if isinstance(at, list) else name]
        at[int(last) if isinstance(at, list) else last] = value
    changed = PlanDocument.model_validate_json(json.dumps(fields))
    return sealed(changed.but(shapes=shape_counts(changed.closed_shapes)))
