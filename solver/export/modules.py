"""Modules of Python that set fields of a configuration, and what they say when they are read."""

import ast
from collections.abc import Iterator

#: For the shell: programs started from there find the modules of this folder.
IMPORTABLE = 'export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"'


def read_settings(text: str) -> dict[str, object]:
    """Literals that a module assigns, by name, without running it.

    Fields of `cfg` and `config` stand without these names; what is computed is left out.
    """
    return dict(_literals(text))


def _literals(text: str) -> Iterator[tuple[str, object]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                continue
            yield name.removeprefix("cfg.").removeprefix("config."), value
