"""Random faults in core modules, and whether the test of the module's name catches each.

    python -m tests.mutants --number 60 --seed 1 [--rooms formulations/costs solver/bounds]

A fault is one change of one place: a comparison, an arithmetic operator, min for max, a negated
condition (mutation testing: DeMillo, Lipton, Sayward 1978, doi 10.1109/C-M.1978.218136). The
module is changed in a copy of the tree, and tests/<room>/test_<module>.py runs there, without the
reference folder. A fault that no test sees is printed with its line; so is a module without tests.
The exit code is 1 if there is any. Whether a fault that no test sees changes any behaviour is for
its reader to say.
"""

import argparse
import ast
import copy
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = (
    "formulations",
    "solver/bounds",
    "solver/graph",
    "solver/enumeration",
    "solver/search",
    "solver/verify",
)
LIMIT_S = 120.0  # of one run of tests

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
_EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """A module with one fault. line: of the fault, from 1; what: the fault in words."""

    module: Path  #: from the root
    line: int
    what: str
    text: str


def places(text: str) -> list[tuple[int, int]]:
    """Numbers of the nodes, in the order of `ast.walk`, with each change that they can have."""
    return [
        (number, choice)
        for number, node in enumerate(ast.walk(ast.parse(text)))
        for choice in (0, 1)
        if _change(copy.deepcopy(node), choice) is not None
    ]


def mutant(module: Path, text: str, number: int, choice: int) -> Mutant:
    """The module with the change of this node."""
    tree = ast.parse(text)
    node = next(islice(ast.walk(tree), number, None))
    what = _change(node, choice)
    assert what is not None
    return Mutant(module, getattr(node, "lineno", 0), what, ast.unparse(tree))


def _change(node: ast.AST, choice: int) -> str | None:
    """Changes the node, and says how; None where there is no such change of it."""
    before = ast.unparse(node) if isinstance(node, ast.expr) else ""
    match node:
        case ast.Compare(ops=[op, *_]) if choice == 0 and type(op) in _COMPARISONS:
            node.ops[0] = _COMPARISONS[type(op)]()
        case ast.BinOp(op=op) if choice == 0 and type(op) in _ARITHMETIC:
            node.op = _ARITHMETIC[type(op)]()
        case ast.Call(func=ast.Name(id=name)) if choice == 0 and name in _EXTREMES:
            node.func = ast.Name(_EXTREMES[name])
        case ast.Attribute(attr=name) if choice == 0 and name in _EXTREMES:
            node.attr = _EXTREMES[name]
        case ast.If(test=test) | ast.IfExp(test=test) if choice == 1:
            before = ast.unparse(test)
            node.test = ast.UnaryOp(ast.Not(), test)
            return f"if {before} -> if not"
        case _:
            return None
    return f"{before} -> {ast.unparse(node)}"


def drawn(rooms: Sequence[str], number: int, seed: int) -> Iterator[Mutant]:
    """So many mutants; each module is drawn as often as it has lines."""
    rng = random.Random(seed)
    modules = sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))
    texts = {path: path.read_text() for path in modules}
    weights = [len(text.splitlines()) for text in texts.values()]
    while number:
        path = rng.choices(modules, weights)[0]
        if choices := places(texts[path]):
            number -= 1
            yield mutant(path.relative_to(ROOT), texts[path], *rng.choice(choices))


def named_tests(module: Path) -> Path | None:
    """tests/<room>/test_<module>.py, of the root; None if there is none.

    The room is the folder of the module, or one above it; a package's own file has tests of the
    package's name.
    """
    stem = module.parent.name if module.stem == "__init__" else module.stem
    rooms = [*(parent.name for parent in module.parents), ""]
    paths = [ROOT / "tests" / room / f"test_{stem}.py" for room in rooms]
    return next((path for path in paths if path.is_file()), None)


def survives(mutant: Mutant, tests: Path, tree: Path, limit_s: float) -> bool:
    """Whether the tests pass in a copy of the tree with the mutant. A run too long is caught."""
    changed = tree / mutant.module
    original = changed.read_text()
    changed.write_text(mutant.text)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "HETPLAN_REFERENCE": str(tree / "none"), "PYTHONPATH": str(tree)}
    try:
        run = subprocess.run(
            [*command, str(tests.relative_to(ROOT))],
            cwd=tree,
            env=environment,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        changed.write_text(original)
    return run.returncode == 0


def main() -> int:
    """Prints every mutant that survives, and how many were caught; 1 if any survived."""
    parser = argparse.ArgumentParser(description="random faults, and whether tests catch them")
    parser.add_argument("--number", type=int, default=60, help="mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", default=CORE, help="folders of modules")
    parser.add_argument("--processes", type=int, default=2, help="runs of tests side by side")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of one run")
    options = parser.parse_args()
    rooms = [room for room in options.rooms if (ROOT / room).exists()]
    faults = list(drawn(rooms, options.number, options.seed))
    with tempfile.TemporaryDirectory() as folder:
        trees = queue.SimpleQueue[Path]()
        ignored = shutil.ignore_patterns(".git", ".venv", "*_cache", "__pycache__", "site")
        for n in range(options.processes):
            trees.put(Path(folder) / f"tree{n}")
            shutil.copytree(ROOT, Path(folder) / f"tree{n}", ignore=ignored, symlinks=True)

        def told(fault: Mutant) -> str | None:
            """Why the fault is not caught; None if it is."""
            if (tests := named_tests(fault.module)) is None:
                return "no test of that name"
            tree = trees.get()
            try:
                return "survives" if survives(fault, tests, tree, options.limit) else None
            finally:
                trees.put(tree)

        survivors = 0
        with ThreadPoolExecutor(options.processes) as pool:
            for fault, why in zip(faults, pool.map(told, faults), strict=True):
                if why is not None:
                    survivors += 1
                    print(f"{fault.module}:{fault.line}: {why}: {fault.what}", flush=True)
    print(f"{options.number - survivors} of {options.number} caught")
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main())
