"""The text of a first instance: what is known, what is assumed, what may be added."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from formulations.instance.machines import GpuType
from solver.setup.machines import Machines

#: The networks of whole systems of 8 GPUs, and of everything else: what is assumed if nobody says.
_SYSTEMS = {
    "A100-40": ("EFA 4x100G", "AWS p4d.24xlarge"),
    "A100-80": ("InfiniBand 8x HDR", "a DGX A100"),
    "H100": ("InfiniBand 8x NDR", "a DGX H100"),
    "H200": ("InfiniBand 8x NDR", "a DGX H200"),
    "B200": ("InfiniBand 8x NDR", "a DGX B200"),
}
_ELSE = "Ethernet 100G", "machines of many clouds"
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


def assumed_network(machines: Machines) -> tuple[str, str]:
    """The network of such machines, a name of the link catalogue, and who has it."""
    system = _SYSTEMS.get(machines.gpu)
    return system if system and machines.gpus_per_node == 8 else _ELSE


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
    lines = [
        "# Written by `hetplan init`.",
        f"name: {json.dumps(name)}",
        "workload:",
        f"  {origin}",
        f"  sequence_length: {training.sequence_length}  # tokens",
        f"  global_batch: {training.global_batch}  # sequences per step",
        f"  precision: {precision}",
        "cluster:",
        "  groups:",
    ]
    groups_of = Counter[str]()
    for kind in machines:
        groups_of[kind.gpu] += 1
        number = f"-{groups_of[kind.gpu]}" if groups_of[kind.gpu] > 1 else ""
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
            network, owner = assumed_network(kind)
            assumed = f"assumed, as {owner}; or such as 400 Gbit/s"
            lines.append(f"      inter_node: {network}  # {assumed}")
        prices = kind.price or ("# price: 30 USD/h  # of one node",)
        lines += (f"      {line}" for line in prices)
    more = resources.files("solver.setup").joinpath("optional.yaml").read_text(encoding="utf-8")
    return "\n".join([*lines, "", more])
