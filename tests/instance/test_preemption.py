"""Promises of formulations.instance.preemption, by the measured figures."""

import pytest

from formulations.instance.preemption import (
    MEASURED,
    NODE_READY_S,
    PreemptionFile,
    costs_of_size,
    resolve_preemption,
)

LARGEST = MEASURED[-1].parameters


@pytest.mark.parametrize(
    ("parameters", "model", "factor"),
    [
        (1, "BERT-large", 1.0),
        (335_141_888, "BERT-large", 1.0),
        (335_141_889, "GPT-2", 1.0),
        (LARGEST, "GPT-3 6.7B", 1.0),
        (2 * LARGEST, "GPT-3 6.7B", 2.0),
    ],
)
def test_costs_are_those_of_the_next_larger_model(
    parameters: int, model: str, factor: float
) -> None:
    """Above the largest they grow with the size."""
    costs, scale = costs_of_size(parameters)
    assert (costs.model, scale) == (model, factor)


def test_what_is_not_written_is_varunas() -> None:
    """45 s until a node is ready and a restart of 701 s; written figures stay."""
    usual = resolve_preemption(None, 2 * LARGEST)
    assert (usual.restart_s, usual.checkpoint_s) == (NODE_READY_S + 2 * 701, 2 * 120)
    assert usual.source.endswith(
        "as GPT-3 6.7B, times 2 for the size, public simulator of Oobleck (SOSP 2023)"
    )
    written = PreemptionFile(restart_s=5.0, kind="measured", source="ours")
    decided = resolve_preemption(written, LARGEST)
    assert (decided.restart_s, decided.checkpoint_s, decided.kind) == (5.0, 120, "assumed")
    assert decided.source.startswith("ours; checkpoint Varuna's")
    both = written.model_copy(update={"checkpoint_s": 3.0})
    stated = resolve_preemption(both, LARGEST)
    assert (stated.checkpoint_s, stated.kind, stated.source) == (3.0, "measured", "ours")
