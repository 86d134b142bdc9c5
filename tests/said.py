"""What a search says: its plan and its proof."""

from typing import Any

from solver.document import RECORDED
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import Result


def said(result: Result) -> dict[str, Any]:
    """Plan, bound and log; what describes the run itself is left out."""
    fields = build_document(result, SolveOptions()).model_dump(mode="json")
    return {key: value for key, value in fields.items() if key not in (*RECORDED, "digest")}
