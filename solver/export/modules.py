"""Modules of Python that set fields of a configuration, and what they say when they are read."""

import ast
from collections.abc import Iterator

#: For the shell: programs started from there find the modules of this folder.
IMPORTABLE = 'export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"'


def read_settings(text: str) -> dict[str, object]:
    """Literals that a module assigns, by name, without running it; what is computed is left out."""
    found: dict[str, object] = {}
    for name, value, _ in assignments(text):
        try:
            found[name] = ast.literal_eval(value)
        except ValueError:
            continue
    return found


def assignments(text: str) -> Iterator[tuple[str, ast.expr, int]]:
    """What a module assigns: name, expression, line; fields of `cfg` and `config` without these."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            name = name.removeprefix("cfg.").removeprefix("config.")
            yield name, node.value, node.lineno
