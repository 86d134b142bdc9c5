"""What an instance itself states of the problem in a file of mixed lengths."""

from typing import Any

from formulations.instance import Instance
from formulations.instance.rows import lengths_of
from solver.lengths.candidates import candidates
from solver.lengths_document import AtomDocument, ProblemDocument


def stated_problem(instance: Instance) -> dict[str, Any]:
    """Fields of `ProblemDocument`: all if strategies were measured, else `rows` and `atoms`."""
    lengths = lengths_of(instance)
    if lengths.strategies:
        return ProblemDocument.of(candidates(instance).mixed).model_dump(mode="json")
    atoms = (AtomDocument(tokens=one.tokens, count=one.count) for one in lengths.classes)
    return {"rows": lengths.rows, "atoms": [one.model_dump(mode="json") for one in atoms]}
