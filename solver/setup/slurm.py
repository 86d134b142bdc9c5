"""Machines of a Slurm cluster, from what its own commands print."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from formulations.errors import InstanceError
from formulations.instance.documents import read_text
from formulations.instance.input_limits import MOST_GPUS
from solver.setup.machines import Machines, catalogue_name

ALLOWED = "what `scontrol show node` prints, or `sinfo -o '%N %G %T'`, with gpu:TYPE:COUNT"
_GPUS = re.compile(r"gpu:([\w.-]+):(\d{1,3})")
_UNTYPED = re.compile(r"gpu:\d")
_GONE = re.compile(r"\b(DOWN|DRAIN|DRNG|FAIL)")
_RANGE = re.compile(r"\[([\d,-]+)\]")
_NUMBERS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def slurm_machines(path: Path, known: Iterable[str]) -> list[Machines]:
    """The machines that work, equal ones together, in order of their first node.

    Raises InstanceError, with the line, for a file of another kind or a GPU that is not known.
    """
    text = read_text(path, ALLOWED)
    read = _of_scontrol if "NodeName=" in text else _of_sinfo
    names = tuple(known)
    nodes: dict[str, tuple[int, str]] = {}  # by name: sinfo lists a node once per partition
    for line, node, gres in read(text):
        types = _GPUS.findall(gres)
        where = f"{path}:{line}"
        if len(types) > 1:
            found = f"node {node} with the GPUs {types[0][0]} and {types[1][0]}"
            raise InstanceError(where, found, "one type per node; leave the node out")
        if not types and _UNTYPED.search(gres):
            allowed = "gpu:TYPE:COUNT; write the type in the file"
            raise InstanceError(where, f"node {node} with GPUs of no type, {gres}", allowed)
        for gpu, number in types:
            nodes[node] = int(number), _type_of(gpu, number, names, where)
    counts = Counter(nodes.values())
    if not counts:
        raise InstanceError(str(path), "no node with GPUs", ALLOWED)
    return [Machines(count, gpus, gpu) for (gpus, gpu), count in counts.items()]


def _type_of(gpu: str, number: str, names: tuple[str, ...], where: str) -> str:
    """A name of the catalogue. Raises InstanceError that says how to write the one that is meant.

    Slurm's administrators often name no memory: a100.
    """
    try:
        return catalogue_name(gpu, names, where)
    except InstanceError as error:
        example = error.allowed.partition(", ")[0]
        written = f"{error.allowed}; write it in the file, such as gpu:{example}:{number}"
        raise InstanceError(where, error.found, written) from None


def _of_scontrol(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, name and Gres of every node that is neither down nor drained."""
    for match in re.finditer(r"NodeName=(\S+)((?:(?!NodeName=).)*)", text, re.DOTALL):
        name, fields = match.groups()
        gres = re.search(r"\bGres=(\S+)", fields)
        state = re.search(r"\bState=(\S+)", fields)
        if gres is not None and not (state and _GONE.search(state[1])):
            yield text.count("\n", 0, match.start()) + 1, name, gres[1]


def _of_sinfo(text: str) -> Iterator[tuple[int, str, str]]:
    """The same of a table with columns NODELIST and GRES; nodes repeat per partition."""
    header: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if {"NODELIST", "GRES"} <= set(words):
            header = words
        elif header and len(words) == len(header) and not _GONE.search(line.upper()):
            row = dict(zip(header, words, strict=True))
            yield from ((number, node, row["GRES"]) for node in _names(row["NODELIST"]))


def _names(nodes: str) -> Iterator[str]:
    """Names of node[01-03,7],login as node01, node02, node03, node7, login."""
    for part in re.findall(r"[^,\[]+(?:\[[\d,-]+\][^,]*)?", nodes):
        inner = _RANGE.search(part)
        if inner is None:
            yield part
            continue
        for first, last in _NUMBERS.findall(inner[1]):
            for number in range(int(first), min(int(last or first), int(first) + MOST_GPUS) + 1):
                yield part.replace(inner[0], str(number).zfill(len(first)))
