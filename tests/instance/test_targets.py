"""Launch targets: what is left of the defaults of `search`."""

from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import parse_instance


def parsed(search: str, gpu: str = "A100-40") -> Instance:
    """BERT-large on four GPUs."""
    text = f"""
name: small
workload: {{catalogue: bert-large, precision: fp32}}
cluster: {{groups: [{{name: a, gpu: {gpu}, gpus_per_node: 4, nodes: 1}}]}}
search: {{micro_batch: 1{search}}}
"""
    return parse_instance(text, "x.yaml", Path())


@pytest.mark.parametrize(
    ("search", "zero", "per", "recompute"),
    [
        ("", (0, 1), "plan", ("none", "selective", "full")),
        (", target: flagscale", (0, 1), "stage", ("none", "full")),
        (", target: torchtitan", (0, 1, 2, 3), "plan", ("none", "full")),
        (", target: any", (0, 1, 2, 3), "stage", ("none", "selective", "full")),
        (", target: any, zero: 1, recompute: full", (1,), "stage", ("full",)),
        (
            ", target: flagscale, recompute_per: plan",
            (0, 1),
            "plan",
            ("none", "selective", "full"),
        ),
    ],
)
def test_defaults_are_what_the_target_runs(
    search: str, zero: tuple[int, ...], per: str, recompute: tuple[str, ...]
) -> None:
    """What is not stated is narrowed; on a V100, which has no flash attention, three ways stay."""
    found = parsed(search, gpu="V100-16").search
    assert (found.zero, found.recompute_per, found.recompute) == (zero, per, recompute)
