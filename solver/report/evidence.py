"""What a plan's figures rest on: kinds and sources."""

from formulations.instance.evidence import Evidence
from formulations.instance.provenance import GpuEvidence
from solver.document import PlanDocument
from solver.report.layout import Lines

_FIGURES = {
    "peak": "peaks",
    "memory": "memory",
    "intra_node": "links in nodes",
    "inter_node": "between nodes",
}


def _gpu_text(evidence: GpuEvidence, profiled: bool) -> str:
    """Figures of one kind and source stand together."""
    times = {"layer_times": "layer times" if profiled else "kernel efficiency"}
    figures: dict[Evidence, list[str]] = {}
    for name, text in (_FIGURES | times).items():
        figures.setdefault(getattr(evidence, name), []).append(text)
    parts = [f"{', '.join(own)} {one.kind} ({one.source})" for one, own in figures.items()]
    return f"{evidence.gpu}: {'; '.join(parts)}"


def evidence_lines(document: PlanDocument) -> Lines:
    """One line per GPU type used."""
    profiled = document.instance.profile is not None
    lines = [_gpu_text(one, profiled) for one in document.evidence]
    return [("" if i else "rests on", line) for i, line in enumerate(lines)]
