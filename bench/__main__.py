"""The benchmarks: `python -m bench NAME [options]`; those are modules with a `main`."""

import ast
import sys
from importlib import import_module
from pathlib import Path

from formulations.errors import PlannerError


def benchmarks() -> dict[str, str]:
    """What each of them measures: the first line of its module, by name."""
    modules = {
        path.stem: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(Path(__file__).parent.glob("[!_]*.py"))
    }
    return {
        name: (ast.get_docstring(module) or "").partition("\n")[0]
        for name, module in modules.items()
        if any(isinstance(one, ast.FunctionDef) and one.name == "main" for one in module.body)
    }


def main() -> None:
    """Runs the benchmark that the first argument names, with the arguments after it.

    What cannot be done is one line and an exit code, as of hetplan itself.
    """
    known = benchmarks()
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        lines = [f"  {name:14} {what}" for name, what in known.items()]
        sys.exit("\n".join(["usage: python -m bench NAME [options]; NAME is one of", *lines]))
    name = sys.argv.pop(1)
    try:
        import_module(f"bench.{name}").main()
    except PlannerError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
