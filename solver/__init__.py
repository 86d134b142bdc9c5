"""How the problem is solved, proved, checked and shown.

`solve(instance, options)` is the Python API; names are imported when they are first used, since
engines take long to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solver.options import SolveOptions
    from solver.result import Result, Status, Termination
    from solver.search.driver import solve

__all__ = ["Result", "SolveOptions", "Status", "Termination", "solve"]

_HOMES = {
    "Result": "solver.result",
    "SolveOptions": "solver.options",
    "Status": "solver.result",
    "Termination": "solver.result",
    "solve": "solver.search.driver",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
