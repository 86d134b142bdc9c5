"""Sailor's even splits, and what its instances hold."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.sailor import CASES, NAMES, contradicted, even_plan, line, sailor_split
from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.search.shapes import shapes

BLOCK = 2  # all from the second on have the same times


@pytest.fixture(scope="module")
def small() -> Instance:
    """26 layers on 4 nodes of 4 A100 and 8 of 4 V100."""
    return load_instance(CASES / "opt_16_32.yaml")


@pytest.mark.parametrize(
    ("stages", "ends"),
    [(1, (0, 26)), (3, (0, 8, 17, 26)), (4, (0, 6, 12, 19, 26)), (24, None)],
)
def test_layers_left_over_go_to_the_last_stages(
    small: Instance, stages: int, ends: tuple[int, ...] | None
) -> None:
    """26 = 8 + 9 + 9 = 6 + 6 + 7 + 7; with 24 stages the first would be the embedding alone."""
    shape = next(shape for shape in shapes(small) if shape.pp == stages)
    assert sailor_split(build_tables(small, shape)) == ends


def test_even_plan_is_even(small: Instance) -> None:
    """Its stages hold equally many layers, or one more."""
    search = small.search.model_copy(update={"pipeline_parallel": (3,), "idle_nodes": False})
    found = even_plan(small.model_copy(update={"search": search}))
    assert found is not None
    sizes = {end - start for stage in found[0].replicas[0].stages for start, end in [stage.layers]}
    assert max(sizes) - min(sizes) <= 1


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
                    layer = {"embedding": 0, "block": BLOCK, "head": len(layers) - 1}[kind]
                    assert times == pytest.approx([1e3 * s for s in layers[str(layer)][:2]])


def test_all_instances_load() -> None:
    """The names that run by default are the files, profiles apart."""
    files = {path.stem for path in CASES.glob("*.yaml") if not path.stem.startswith("profile_")}
    assert files == set(NAMES)
    for name in NAMES:
        assert load_instance(CASES / f"{name}.yaml").name == f"sailor_{name}"


@pytest.mark.parametrize(
    ("even", "problems", "wrong"),
    [(1.2, [], False), (1.0, [], True), (1.2, ["a stage does not fit"], True), (None, [], False)],
)
def test_contradictions(even: float | None, problems: list[str], wrong: bool) -> None:
    """An even split below our bound, or an objection of the verifier's, fails the run."""
    shape = {"pp": 2}
    figures: dict[str, Any] = {"instance": "x", "even_s": even, "even_shape": shape}
    figures |= {"ours_s": 1.1, "bound_s": 1.05, "ours_shape": shape, "status": "optimal"}
    figures |= {"gap": 0.0, "cpu_s": 1.0, "problems": problems, "proof_repeated": True}
    assert contradicted(figures) is wrong
    assert line(figures).startswith("x: even")
