"""What a plan's figures rest on: kinds, and the sources of what is assumed.

All sources stand in the plan file, and in the list of the catalogue.
"""

from formulations.instance.evidence import NOT_STATED, Evidence
from formulations.instance.provenance import GpuEvidence
from solver.document import PlanDocument
from solver.report.layout import Lines
from solver.report.quantities import percent, significant

_FIGURES = {
    "peak": "peaks",
    "memory": "memory",
    "intra_node": "links in nodes",
    "inter_node": "between nodes",
}


def _gpu_text(evidence: GpuEvidence, profiled: bool) -> str:
    """Figures of one kind stand together, assumed ones of one source."""
    times = {"layer_times": "layer times" if profiled else "kernel efficiency"}
    figures: dict[str, list[str]] = {}
    for name, text in (_FIGURES | times).items():
        figures.setdefault(_kind_text(getattr(evidence, name)), []).append(text)
    parts = [f"{', '.join(own)} {kind}" for kind, own in figures.items()]
    return f"{evidence.gpu}: {'; '.join(parts)}"


def _kind_text(evidence: Evidence) -> str:
    if evidence.kind != "assumed":
        return evidence.kind
    source = evidence.source
    return f"assumed by {source}" if source == NOT_STATED else f"assumed ({source})"


def calibration_lines(document: PlanDocument) -> Lines:
    """By what measured steps correct the layer times of a plan, and the error to expect."""
    calibration, shape = document.instance.calibration, document.shape
    if calibration is None or shape is None:
        return []
    kernels = shape.tp, shape.micro_batch
    gpus = [one.gpu for one in document.evidence]
    factors = {gpu: calibration.factor(gpu, *kernels) for gpu in gpus}
    texts = [f"x {significant(f, 3)} on {gpu}" for gpu, f in factors.items() if f is not None]
    if not texts:
        return []
    lines = [("corrected", f"layer times {', '.join(texts)} ({calibration.source})")]
    unmeasured = [gpu for gpu in gpus if not calibration.was_measured(gpu, *kernels)]
    where = f"no measured step has these degrees and micro-batches on {', '.join(unmeasured)}"
    error = calibration.expected_error
    if unmeasured:
        error = calibration.expected_error_elsewhere
    if error is None:
        expected = f"not known{': ' + where if unmeasured else ', too few measured steps'}"
    else:
        expected = f"{percent(error)} of the step time{'; ' + where if unmeasured else ''}"
    return [*lines, ("expect error", expected)]


def evidence_lines(document: PlanDocument) -> Lines:
    """One entry per GPU type used."""
    profiled = document.instance.profile is not None
    lines = [_gpu_text(one, profiled) for one in document.evidence]
    return [("" if i else "rests on", line) for i, line in enumerate(lines)]
