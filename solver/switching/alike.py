"""Whether a switch from one plan to another makes sense: the same model on the same machines."""

from collections.abc import Iterator
from itertools import combinations

from formulations.errors import PlanError
from formulations.instance import Cluster, Link, Workload
from formulations.instance.input_limits import MOST_TEXT
from solver.document import PlanDocument


def check_alike(before: PlanDocument, after: PlanDocument, names: tuple[str, str]) -> None:
    """Returns if two plans are of one model and one cluster; PlanError with the first difference.

    Sequence length, batch, and what machines cost are left aside.
    """
    pair = [(one.instance.workload, one.instance.cluster) for one in (after, before)]
    for field, found, expected in unlike(*pair):
        allowed = f"{expected}, as in {names[0]}"
        raise PlanError(f"{names[1]}: {field}", found[:MOST_TEXT], allowed[:MOST_TEXT])


def unlike(
    one: tuple[Workload, Cluster], other: tuple[Workload, Cluster]
) -> Iterator[tuple[str, str, str]]:
    """Where models and machines differ in what a switch rests on: field, that of one, of other."""
    for what, found, expected in (
        ("workload", _model(one[0]), _model(other[0])),
        ("cluster", _machines(one[1]), _machines(other[1])),
    ):
        for field, value in expected.items():
            if found.get(field) != value:
                yield f"instance.{what}: {field}", found.get(field, "none"), value


def _model(workload: Workload) -> dict[str, str]:
    """All that the sizes of tensors depend on, in words."""
    found = {
        "name": workload.name,
        "parameters": str(workload.parameters),
        "layers": str(len(workload.layers)),
        "bytes per parameter": str(workload.parameter_bytes),
        "bytes per gradient": str(workload.gradient_bytes),
    }
    for n, run in enumerate(workload.layer_runs):
        one = run.layer
        found[f"layer_runs[{n}]"] = (
            f"{run.count} of {one.sharded_parameters} split, {one.replicated_parameters} whole,"
            f" {one.expert_parameters} expert parameters, {one.vocabulary_rows} x"
            f" {one.vocabulary_columns} of the vocabulary{', tied' * one.tied_copy}"
        )
    return found


def _machines(cluster: Cluster) -> dict[str, str]:
    """Machines and links, in words."""
    groups = [
        f"{one.nodes} {one.name} of {one.gpus_per_node} {one.gpu.name}" for one in cluster.groups
    ]
    found = {"groups": ", ".join(groups)}
    for j, group in enumerate(cluster.groups):
        found[f"groups[{j}].zone"] = str(group.zone)
        found[f"groups[{j}].intra_node"] = _link(group.intra_node)
        found[f"groups[{j}].inter_node"] = _link(group.inter_node)
    for pair in combinations(cluster.zones, 2):
        found[f"zone_link of {' and '.join(map(str, pair))}"] = _link(cluster.link_between(*pair))
    return found


def _link(link: Link) -> str:
    return f"{link.bandwidth_bytes_per_s:g} bytes/s, {link.latency_s:g} s"
