"""What a plan's figures rest on: kinds, and the sources of what is assumed.

All sources stand in the plan file, and in the list of the catalogue.
"""

from formulations.instance.sources import NOT_STATED, Evidence, GpuEvidence
from solver.document import PlanDocument
from solver.report.layout import Lines
from solver.report.quantities import percent

_FIGURES = {
    "peak": "peaks",
    "memory_bandwidth": "memory bandwidth",
    "memory": "memory",
    "intra_node": "links in nodes",
    "inter_node": "between nodes",
}


def _gpu_text(evidence: GpuEvidence, profiled: bool) -> str:
    """Figures of one kind stand together, assumed ones of one source.

    The memory's bandwidth goes without saying where it is of the peaks' kind.
    """
    times = {"layer_times": "layer times" if profiled else "kernel efficiency"}
    figures: dict[str, list[str]] = {}
    known = _FIGURES | times
    if evidence.memory_bandwidth.kind == evidence.peak.kind:
        del known["memory_bandwidth"]
    for name, text in known.items():
        figures.setdefault(_kind_text(getattr(evidence, name)), []).append(text)
    parts = [f"{', '.join(own)} {kind}" for kind, own in figures.items()]
    return f"{evidence.gpu}: {'; '.join(parts)}"


def _kind_text(evidence: Evidence) -> str:
    if evidence.kind != "assumed":
        besides = ", ".join(evidence.assumed)
        return f"{evidence.kind} ({besides} assumed)" if besides else evidence.kind
    source = evidence.source
    return f"assumed by {source}" if source == NOT_STATED else f"assumed ({source})"


def calibration_lines(document: PlanDocument) -> Lines:
    """By what measured steps correct the layer times of a plan, and the error to expect."""
    calibration, shape = document.instance.calibration, document.shape
    if calibration is None or shape is None:
        return []
    error, where = calibration.expected_error, []
    for group, used, own in zip(
        document.instance.cluster.groups, shape.nodes_used, shape.degrees, strict=True
    ):
        size = own.sequences(shape.micro_batch)
        if used and not calibration.was_measured(group.gpu.name, own.tp, size):
            where.append(f"{group.gpu.name} at tensor {own.tp}, micro-batch {size}")
    if where:
        error = calibration.expected_error_elsewhere
    why = f"; no step was measured on {', '.join(dict.fromkeys(where))}" if where else ""
    expected = "not known" if error is None else f"{percent(error)} of the step time"
    return [
        ("corrected", f"layer times by {calibration.source}"),
        ("error", f"expected {expected}{why}"),
    ]


def evidence_lines(document: PlanDocument) -> Lines:
    """One entry per GPU type used."""
    profiled = document.instance.profile is not None
    lines = [_gpu_text(one, profiled) for one in document.evidence]
    return [("" if i else "rests on", line) for i, line in enumerate(lines)]
