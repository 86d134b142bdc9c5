"""Promises of formulations.instance.preemption, by the measured figures."""

from formulations.instance.preemption import (
    MEASURED,
    NODE_READY_S,
    SOURCE,
    PreemptionFile,
    costs_of_size,
    resolve_preemption,
)

LARGEST = MEASURED[-1].parameters


def test_what_is_not_written_is_varunas() -> None:
    """Of the next larger model, above the largest in proportion; written figures stay.

    45 s until a node is ready and a restart of 701 s.
    """
    sizes = (1, 335_141_888, 335_141_889, LARGEST, 2 * LARGEST)
    costs = [(cost.model, factor) for cost, factor in map(costs_of_size, sizes)]
    smaller = [*((name, 1.0) for name in ("BERT-large", "BERT-large", "GPT-2", "GPT-3 6.7B"))]
    assert costs == [*smaller, ("GPT-3 6.7B", 2.0)]
    usual = resolve_preemption(None, 2 * LARGEST)
    assert (usual.restart_s, usual.checkpoint_s) == (NODE_READY_S + 2 * 701, 2 * 120)
    assert usual.source.endswith(f"as GPT-3 6.7B, times 2 for the size, {SOURCE}")
    written = PreemptionFile(restart_s=5.0, kind="measured", source="ours")
    decided = resolve_preemption(written, LARGEST)
    assert (decided.restart_s, decided.checkpoint_s, decided.kind) == (5.0, 120, "assumed")
    assert decided.source == f"ours; checkpoint Varuna's, as GPT-3 6.7B, {SOURCE}"
    stated = resolve_preemption(written.but(checkpoint_s=3.0), LARGEST)
    assert (stated.checkpoint_s, stated.kind, stated.source) == (3.0, "measured", "ours")
