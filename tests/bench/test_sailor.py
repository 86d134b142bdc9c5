"""Sailor's even splits, and what its instances hold."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.sailor import CASES, NAMES, Both, best, contradicted, line, sailor_split
from bench.super_gpus import degrees_per_group, super_gpus
from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.space import configs
from solver.options import SolveOptions
from solver.search.driver import solve

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
    config = next(config for config in configs(small) if config.pp == stages)
    assert sailor_split(build_tables(small, config)) == ends


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


def test_one_degree_is_one_gpu(small: Instance) -> None:
    """With tensor degree 1 everywhere larger GPUs are the GPUs: the same step to the nanosecond."""
    alone = small.but(search={"tensor_parallel": (1,), "pipeline_parallel": (3,)})
    times = [solve(one, SolveOptions()).step_time_ns for one in (alone, super_gpus(alone, (1, 1)))]
    assert times[0] == times[1]


def test_larger_gpus_are_slower_by_what_was_measured(small: Instance) -> None:
    """Two V100 as one: two a node, blocks of 4.224 + 9.51 ms, 2 / (1 + 1/12) of the memory.

    Of a block's activations 32 MiB of 384 MiB are whole on each GPU.
    """
    assert len(set(degrees_per_group(small))) == 9  # three degrees on each of two groups
    changed = super_gpus(small, (1, 2))
    a100, v100 = changed.cluster.groups
    assert (a100.gpus_per_node, v100.gpus_per_node) == (4, 2)
    assert changed.profile is not None
    times, _ = changed.profile.time_s("block", v100.gpu.name, 1, 1)
    assert (times.forward, times.backward) == pytest.approx((4.224e-3, 9.51e-3))
    usable = [
        gpu.memory_bytes * (1 - small.limits.memory_headroom) - small.limits.framework_reserve_bytes
        for gpu in (small.cluster.groups[1].gpu, v100.gpu)
    ]
    assert usable[1] == pytest.approx(24 / 13 * usable[0])


@pytest.mark.parametrize(
    ("even", "problems", "wrong"),
    [(1.2, [], False), (1.0, [], True), (1.2, ["a stage does not fit"], True), (None, [], False)],
)
def test_contradictions(even: float | None, problems: list[str], wrong: bool) -> None:
    """An even split below our bound, or an objection of the verifier's, fails the run.

    Of two spaces the least times and bounds count; a proof that is missing anywhere is missing.
    """
    one, other = (
        Both((1, 1), 3.0, 2.0, 1.9, None, True, ()),
        Both((1, 2), 2.5, 2.1, 1.8, None, False, ("x",)),
    )
    assert best([one, other]) == Both((1, 1), 2.5, 2.0, 1.8, None, False, ("x",))
    fine: dict[str, Any] = {"even_s": 1.2, "ours_s": 1.1, "bound_s": 1.05, "problems": []}
    fine |= {"repeated": True, "cpu_s": 1.0, "degrees": (1, 2)}
    figures = {"instance": "x", "uniform": fine | {"even_s": even, "problems": problems}}
    figures |= {"per_type": fine}
    assert contradicted(figures) is wrong
    assert line(figures).startswith("x: uniform: even")
