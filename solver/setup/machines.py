"""Machines as people, Slurm and drivers name them, and their GPU types in the catalogue."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from formulations.errors import InstanceError
from formulations.instance.record import shown

_MACHINES = re.compile(r"(?:(\d{1,6})x)?(\d{1,3})x([A-Za-z][\w .-]*?)(?:@(.+))?")
ALLOWED = 'NODESxGPUSxTYPE[@NETWORK], such as 4x8xH100 or "2x4xRTX-3090@10 Gbit/s"'


@dataclass(frozen=True)
class Machines:
    """Equal nodes; network: the link between nodes, as an instance writes it, if anybody says."""

    nodes: int
    gpus_per_node: int
    gpu: str  #: a name of the catalogue
    network: str | None = None


def parse_machines(text: str, known: Iterable[str]) -> Machines:
    """The machines of a text such as 4x8xH100@400 Gbit/s; 8xH100 is one node.

    Raises InstanceError for another form, and for a GPU that the catalogue lacks.
    """
    match = _MACHINES.fullmatch(text.strip())
    if match is None:
        raise InstanceError("--nodes", shown(text), ALLOWED)
    nodes, gpus, name, network = match.groups()
    if int(nodes or 1) == 0 or int(gpus) == 0:
        raise InstanceError("--nodes", shown(text), "one node and one GPU at least")
    gpu = catalogue_name(name, known, "--nodes")
    return Machines(int(nodes or 1), int(gpus), gpu, network and network.strip())


def catalogue_name(name: str, known: Iterable[str], where: str) -> str:
    """The GPU type that somebody calls so: NVIDIA A100-SXM4-80GB is A100-80, rtx3090 RTX-3090.

    Raises InstanceError for an unknown name, and for one that leaves the memory open.
    """
    names = tuple(known)
    if name in names:
        return name
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    words += [first + second for first, second in pairwise(words)]
    alike = {one: size for one in names for stem, size in [_stem(one)] if stem in words}
    fitting = [one for one, size in alike.items() if size in words or f"{size}gb" in words]
    found = fitting or list(alike)
    if len(found) == 1:
        return found[0]
    problem = f"the GPU {shown(name)}" + (", of which there are several" if found else "")
    raise InstanceError(where, problem, ", ".join(found or names))


def _stem(name: str) -> tuple[str, str]:
    """A100-40 -> a100 and 40; RTX-3090 -> rtx3090 and nothing."""
    family, _, size = name.lower().rpartition("-")
    if family and len(size) <= 3 and size.isdigit():
        return family, size
    return re.sub(r"[^a-z0-9]", "", name.lower()), ""
