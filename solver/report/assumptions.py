"""What a plan's figures rest on: kinds and sources, and what is assumed besides."""

from formulations.instance.evidence import Evidence
from formulations.instance.overlap import Overlap
from formulations.instance.provenance import GpuEvidence
from solver.document import PlanDocument
from solver.report.layout import Lines
from solver.report.quantities import percent

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


def _overlap_text(overlap: Overlap) -> str:
    shares = (
        (overlap.tensor_parallel, "tensor-parallel traffic behind products"),
        (overlap.gradient_sync, "gradient sync behind backward"),
    )
    hidden = ", ".join(f"{percent(share)} of {what}" for share, what in shares if share)
    return f"hidden {hidden}; {overlap.kind} ({overlap.source})" if hidden else ""


def assumptions(document: PlanDocument) -> Lines:
    """One line per GPU type used, and one for what hides behind computation."""
    profiled = document.instance.profile is not None
    lines = [_gpu_text(one, profiled) for one in document.evidence]
    overlap = _overlap_text(document.instance.search.overlap)
    lines += [overlap] if overlap else []
    return [("" if i else "rests on", line) for i, line in enumerate(lines)]
