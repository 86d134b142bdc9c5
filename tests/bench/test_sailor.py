"""Sailor's even splits, and its profiles."""

import json
from pathlib import Path

import pytest
import yaml

from bench.sailor import CASES, sailor_split
from formulations.costs.tables import build_tables
from formulations.instance.load import load_instance
from formulations.space import configs

SMALL = load_instance(CASES / "opt_16_32.yaml")  # 26 layers on 4 nodes of 4 A100 and 8 of 4 V100


@pytest.mark.parametrize(
    ("stages", "ends"), [(3, (0, 8, 17, 26)), (4, (0, 6, 12, 19, 26)), (24, None)]
)
def test_layers_left_over_go_to_the_last_stages(stages: int, ends: tuple[int, ...] | None) -> None:
    """26 = 8 + 9 + 9 = 6 + 6 + 7 + 7; with 24 stages the first would be the embedding alone."""
    config = next(config for config in configs(SMALL) if config.pp == stages)
    assert sailor_split(build_tables(SMALL, config)) == ends


@pytest.mark.parametrize(
    ("model", "profile"),
    [("OPT-350", "profile_opt_350m"), ("GPT-Neo-2.7", "profile_gpt_neo_2_7b")],
)
def test_profile_is_what_was_published(model: str, profile: str, reference: Path) -> None:
    """Every time of the stored profile is Sailor's, in milliseconds."""
    stored = yaml.safe_load((CASES / f"{profile}.yaml").read_text())["times_ms"]
    for gpu in ("A100-40", "V100-16"):
        path = reference / "sailor" / "profiles" / f"{model}_{gpu}.json"
        published = json.loads(path.read_text())
        for kind, curves in stored.items():
            for tp, curve in curves[gpu].items():
                for b, times in curve.items():
                    layers = published[str(b)][str(tp)]
                    # all blocks have the same times
                    layer = {"embedding": 0, "block": 2, "head": len(layers) - 1}[kind]
                    assert times == pytest.approx([1e3 * s for s in layers[str(layer)][:2]])
