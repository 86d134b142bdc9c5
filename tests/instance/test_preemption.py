"""Promises of formulations.instance.preemption, by the measured figures."""

from formulations.instance.preemption import (
    MEASURED,
    NODE_READY_S,
    PreemptionFile,
    costs_of_size,
    resolve_preemption,
)

LARGEST = MEASURED[-1].parameters


def test_costs_are_those_of_the_next_larger_model() -> None:
    """Above the largest they grow with the size."""
    sizes = (1, 335_141_888, 335_141_889, LARGEST, 2 * LARGEST)
    models = ("BERT-large", "BERT-large", "GPT-2", "GPT-3 6.7B", "GPT-3 6.7B")
    costs = [costs_of_size(size) for size in sizes]
    assert [(cost.model, factor) for cost, factor in costs] == [
        *((model, 1.0) for model in models[:-1]),
        (models[-1], 2.0),
    ]


def test_what_is_not_written_is_varunas() -> None:
    """45 s until a node is ready and a restart of 701 s; written figures stay."""
    usual = resolve_preemption(None, 2 * LARGEST)
    assert (usual.restart_s, usual.checkpoint_s) == (NODE_READY_S + 2 * 701, 2 * 120)
    scaled = "as GPT-3 6.7B, times 2 for the size, public simulator of Oobleck (SOSP 2023)"
    assert usual.source.endswith(scaled)
    written = PreemptionFile(restart_s=5.0, kind="measured", source="ours")
    decided = resolve_preemption(written, LARGEST)
    assert (decided.restart_s, decided.checkpoint_s, decided.kind) == (5.0, 120, "assumed")
    assert decided.source.startswith("ours; checkpoint Varuna's")
    stated = resolve_preemption(written.but(checkpoint_s=3.0), LARGEST)
    assert (stated.checkpoint_s, stated.kind, stated.source) == (3.0, "measured", "ours")
