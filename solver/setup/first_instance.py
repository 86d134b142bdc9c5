"""A first instance file, of machines as people, Slurm, Kubernetes and drivers name them."""

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import get_args

from formulations.errors import InstanceError, PlannerError
from formulations.instance.documents import Place, parse_document, parse_json, read_text
from formulations.instance.machines import GpuFile, GpuType, gpu_type
from formulations.instance.record import MOST_GPUS, shown
from formulations.instance.validation import validated
from formulations.instance.workload import Precision
from solver.files import beside, table_beside

_MACHINES = re.compile(r"(?:(\d{1,6})x)?(\d{1,3})x([A-Za-z][\w .-]*?)(?:@(.+))?")
ALLOWED = 'NODESxGPUSxTYPE[@NETWORK], such as 4x8xH100 or "2x4xRTX-3090@10 Gbit/s"'
#: Figures of a GPU, in the order of an instance.
FIGURES = "memory=24 GiB,memory_bandwidth=1000 GB/s,link=32 GB/s,bf16=150 TFLOP/s"


class UnknownGpuError(InstanceError):
    """A GPU type that the catalogue does not have; `example`: how to describe it."""

    def __init__(self, where: str, name: str, names: Collection[str]) -> None:
        super().__init__(where, f"the GPU {shown(name)}", ", ".join(names))
        text = f"name={re.sub(r'[^A-Za-z0-9 .-]', '-', name)},{FIGURES}"
        self.example = [f'--gpu "{text}" writes into the instance:', *parse_gpu(text)[1]]


@dataclass(frozen=True)
class Machines:
    """Equal nodes; network: the link between nodes, as an instance writes it, if anybody says.

    price: lines of an instance that say what a node costs.
    """

    nodes: int
    gpus_per_node: int
    gpu: str  #: a name of the catalogue
    network: str | None = None
    price: tuple[str, ...] = ()


def parse_machines(text: str, names: Collection[str]) -> Machines:
    """The machines of a text such as 4x8xH100@400 Gbit/s; 8xH100 is one node.

    Raises InstanceError for another form, and for a GPU that is not among the catalogue's names.
    """
    match = _MACHINES.fullmatch(text.strip())
    if match is None:
        raise InstanceError("--nodes", shown(text), ALLOWED)
    nodes, gpus, name, network = match.groups()
    if int(nodes or 1) == 0 or int(gpus) == 0:
        raise InstanceError("--nodes", shown(text), "one node and one GPU at least")
    gpu = catalogue_name(name, names, "--nodes")
    return Machines(int(nodes or 1), int(gpus), gpu, network and network.strip())


def catalogue_name(name: str, names: Collection[str], where: str) -> str:
    """The GPU type that somebody calls so: NVIDIA A100-SXM4-80GB is A100-80, rtx3090 RTX-3090.

    Raises InstanceError for an unknown name, and for one that leaves the memory open.
    """
    if name in names:
        return name
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    words += [first + second for first, second in pairwise(words)]
    sizes: dict[str, str] = {}  # of the types whose family is a word, as they end: A100-40 -> 40
    for title in names:
        family, _, size = title.lower().rpartition("-")
        has_size = family and len(size) <= 3 and size.isdigit()
        stem = family if has_size else re.sub(r"[^a-z0-9]", "", title.lower())
        if stem in words:
            sizes[title] = size if has_size else ""
    fitting = [gpu for gpu, size in sizes.items() if size in words or f"{size}gb" in words]
    candidates = fitting or list(sizes)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise UnknownGpuError(where, name, names)
    problem = f"the GPU {shown(name)}, of which there are several"
    raise InstanceError(where, problem, ", ".join(candidates))


def parse_gpu(text: str) -> tuple[GpuType, list[str]]:
    """The GPU of a text such as name=X,memory=24 GiB,...,bf16=150 TFLOP/s, and its lines.

    They stand in a node group of an instance. Raises InstanceError for figures that are missing,
    unknown or none.
    """
    lines, peaks = list[str](), list[str]()
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        (peaks if name in get_args(Precision) else lines).append(f"{name}: {value}")
    lines.append(f"peak: {{{', '.join(peaks)}}}")
    try:
        document = parse_document("\n".join(lines), "--gpu")
        gpu = gpu_type(validated(GpuFile, document), Place(document))
    except InstanceError as error:
        where = re.sub(r":\d+:\d+", "", error.where)
        raise InstanceError(where, error.found, error.allowed) from None
    return gpu, ["      gpu:", *(f"        {line}" for line in lines)]


def detected_machines(names: Collection[str]) -> Machines:
    """One node: this machine.

    Raises PlannerError without nvidia-ml-py or a driver, for no GPU, and for GPUs of two types.
    """
    try:
        import pynvml
    except ImportError:
        need = "--detect needs nvidia-ml-py: pip install nvidia-ml-py, or write --nodes"
        raise PlannerError(need) from None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        devices = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise PlannerError(f"--detect: {error}; write --nodes instead") from None
    if not devices:
        raise PlannerError("--detect: this machine has no NVIDIA GPU; write --nodes instead")
    types = sorted({catalogue_name(device, names, "--detect") for device in devices})
    if len(types) > 1:
        raise InstanceError("--detect", f"GPUs of {' and '.join(types)}", "one type per node")
    return Machines(1, len(devices), types[0])


_NODES = "what `kubectl get nodes -o json` prints, with nodes that have GPUs"
#: Labels that name the GPU type of a node: of NVIDIA's GPU feature discovery, and of GKE.
_PRODUCTS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
_COUNT, _CAPACITY = "nvidia.com/gpu.count", "nvidia.com/gpu"


def kubernetes_machines(path: Path, names: Collection[str]) -> list[Machines]:
    """The machines of a Kubernetes cluster that are ready and take pods, equal ones together.

    Raises InstanceError, with the node, for a file of another kind, a GPU that is not known, and
    slices of GPUs.
    """
    document = parse_json(read_text(path, _NODES), str(path), _NODES)
    counts = Counter[tuple[int, str]]()
    for node in _list(_field(document, "items")):
        labels, status = _field(node, "metadata", "labels"), _field(node, "status")
        conditions = _list(_field(status, "conditions"))
        ready = any(
            _field(each, "type") == "Ready" and _field(each, "status") == "True"
            for each in conditions
        )
        number = str(_field(labels, _COUNT) or _field(status, "capacity", _CAPACITY) or "0")
        if not ready or _field(node, "spec", "unschedulable") or number == "0":
            continue
        name = f"{path}: node {shown(_field(node, 'metadata', 'name'))}"
        product = next((str(p) for p in map(partial(_field, labels), _PRODUCTS) if p), None)
        if product is None:
            raise InstanceError(name, "GPUs without a type", f"the label {' or '.join(_PRODUCTS)}")
        if "-MIG-" in product or not re.fullmatch(r"[1-9]\d{0,2}", number):
            problem = f"{number} x {product}"
            raise InstanceError(name, problem, "1 to 999 GPUs, none of them sliced (MIG)")
        counts[int(number), catalogue_name(product, names, name)] += 1
    if not counts:
        raise InstanceError(str(path), "no node with GPUs that is ready", _NODES)
    return [Machines(count, gpus, gpu) for (gpus, gpu), count in counts.items()]


def _field(document: object, *keys: str) -> object:
    """What stands under keys in keys; None where anything is missing."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _list(document: object) -> list[object]:
    return document if isinstance(document, list) else []


_TABLES = "what `scontrol show node` prints, or `sinfo -o '%N %G %T'`, with gpu:TYPE:COUNT"
_GPUS = re.compile(r"gpu:([\w.-]+):(\d{1,3})")
_UNTYPED = re.compile(r"gpu:\d")
_GONE = re.compile(r"\b(DOWN|DRAIN|DRNG|FAIL)")
_RANGE = re.compile(r"\[([\d,-]+)\]")
_NUMBERS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def slurm_machines(path: Path, names: Collection[str]) -> list[Machines]:
    """The machines that work, equal ones together, in order of their first node.

    Raises InstanceError, with the line, for a file of another kind or a GPU that is not known.
    """
    text = read_text(path, _TABLES)
    read = _of_scontrol if "NodeName=" in text else _of_sinfo
    nodes: dict[str, tuple[int, str]] = {}  # by name: sinfo lists a node once per partition
    for line, node, gres in read(text):
        types = _GPUS.findall(gres)
        where = f"{path}:{line}"
        if len(types) > 1:
            problem = f"node {node} with the GPUs {types[0][0]} and {types[1][0]}"
            raise InstanceError(where, problem, "one type per node; leave the node out")
        if not types and _UNTYPED.search(gres):
            allowed = "gpu:TYPE:COUNT; write the type in the file"
            raise InstanceError(where, f"node {node} with GPUs of no type, {gres}", allowed)
        for gpu, number in types:
            try:
                nodes[node] = int(number), catalogue_name(gpu, names, where)
            except UnknownGpuError:
                raise
            except InstanceError as error:  # administrators often name no memory: a100
                example = f"gpu:{error.allowed.partition(', ')[0]}:{number}"
                allowed = f"{error.allowed}; write it in the file, such as {example}"
                raise InstanceError(where, error.found, allowed) from None
    counts = Counter(nodes.values())
    if not counts:
        raise InstanceError(str(path), "no node with GPUs", _TABLES)
    return [Machines(count, gpus, gpu) for (gpus, gpu), count in counts.items()]


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


# The text of an instance: what is known, what is assumed, what may be added

#: Least favoured last; the first that all GPUs have is taken.
_PRECISIONS = ("bf16", "fp16", "fp32")

#: What follows for a model that the default target cannot train.
WIDEST = """
search:
  target: any  # Megatron-LM, the default, cannot train this model
"""


@dataclass(frozen=True)
class Training:
    """The model, by name or by the path of its config.json, and how it is trained."""

    model: str | Path
    sequence_length: int
    global_batch: int


def instance_text(
    training: Training,
    machines: Sequence[Machines],
    gpus: Mapping[str, GpuType],
    folder: Path,
    described: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """A commented instance, with paths relative to the folder that it will stand in.

    described: the lines of GPUs that are not in the catalogue.
    """
    model = training.model
    if isinstance(model, Path):
        name = model.resolve().parent.name if model.stem == "config" else model.stem
        origin = f"huggingface: {json.dumps(os.path.relpath(model.resolve(), folder.resolve()))}"
    else:
        name, origin = model, f"catalogue: {json.dumps(model)}"
    types = [gpus[kind.gpu] for kind in machines]
    precision = next(p for p in _PRECISIONS if all(p in gpu.peak_flops for gpu in types))
    lines, networks = list[str](), table_beside("solver.setup", "networks.yaml")
    for i, kind in enumerate(machines):
        before = sum(other.gpu == kind.gpu for other in machines[:i])
        number = f"-{before + 1}" if before else ""
        named = f"      gpu: {kind.gpu}  # {gpus[kind.gpu].memory_bytes / 2**30:.4g} GiB"
        lines += [
            f"    - name: {kind.gpu.lower()}{number}",
            *(described or {}).get(kind.gpu, [named]),
            f"      gpus_per_node: {kind.gpus_per_node}",
            f"      nodes: {kind.nodes}",
        ]
        if kind.network is not None:
            lines.append(f"      inter_node: {json.dumps(kind.network)}")
        elif sum(each.nodes for each in machines) > 1:
            system = networks["systems"].get(kind.gpu) if kind.gpus_per_node == 8 else None
            network, owner = system or networks["all_else"]
            assumed = f"assumed, as {owner}; or such as 400 Gbit/s"
            lines.append(f"      inter_node: {network}  # {assumed}")
        prices = kind.price or ("# price: 30 USD/h  # of one node",)
        lines += (f"      {line}" for line in prices)
    return beside("solver.setup", "instance.yaml.txt").format(
        name=json.dumps(name),
        origin=origin,
        training=training,
        precision=precision,
        groups="\n".join(lines) + "\n",
    )
