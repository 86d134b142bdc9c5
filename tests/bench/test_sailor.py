"""Sailor's even splits, and its profiles."""

import json
from pathlib import Path

import pytest
import yaml

from bench.sailor import CASES


@pytest.mark.parametrize(
    ("model", "profile"),
    [("OPT-350", "profile_opt_350m"), ("GPT-Neo-2.7", "profile_gpt_neo_2_7b")],
)
def test_profile_is_what_was_published(model: str, profile: str, reference: Path) -> None:
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
