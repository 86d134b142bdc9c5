"""Tensor groups and parts of a plan's slots, in words."""

from collections import Counter

from formulations.instance import Instance
from formulations.plan import Degrees, Shape


def tensor_text(shape: Shape) -> str:
    """GPUs of a tensor group, x4 where 4 of them share a stage; by node group if they differ."""
    found = dict.fromkeys(map(_short, shape.degrees_used))
    return " / ".join(found)


def one_line(shape: Shape) -> str:
    """A shape among the others of its instance."""
    chunks = f", {shape.vpp} chunks" if shape.vpp > 1 else ""
    shared = f", context {shape.cp}, experts {shape.ep}" if shape.cp * shape.ep > 1 else ""
    nodes = " + ".join(map(str, shape.nodes_used))
    return (
        f"tensor {tensor_text(shape)} x data {shape.dp} x pipeline {shape.pp}{chunks}{shared}, "
        f"micro-batch {shape.micro_batch}, {shape.schedule}, recomputed "
        f"{' or '.join(shape.recompute)}, ZeRO {shape.zero}, nodes {nodes}"
    )


def _short(degrees: Degrees) -> str:
    return f"{degrees.tp}" + (f"*{degrees.parts}" if degrees.parts > 1 else "")


def by_group(instance: Instance, shape: Shape) -> str | None:
    """Degrees of every node group used; None where all are alike and undivided."""
    if len(set(shape.degrees_used)) == 1 and shape.degrees_used[0].parts == 1:
        return None
    groups = zip(instance.cluster.groups, shape.degrees, shape.nodes_used, strict=True)
    found = [(group, own, count) for group, own, count in groups if count]
    names = Counter(group.name for group, _, _ in found)
    return ", ".join(
        (f"{count} of {group.name}" if names[group.name] > 1 else group.name)
        + f": tp {own.tp} x {own.parts}"
        + (" parts" if own.parts > 1 else "")
        for group, own, count in found
    )
