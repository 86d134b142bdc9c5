"""Megatron-LM's arguments: what they say is the plan; layouts as Megatron-LM reads them."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from formulations.instance.resolve_workload import workload_catalogue
from formulations.space.launch import model_obstacles
from solver.export import megatron
from solver.export.job import Piece
from solver.export.megatron import parsed, written
from solver.export.megatron_bridge import provided
from tests.export.stored import check_exports
from tests.export_cases import JOBS, UNEVEN, instance_of
from tests.recorded import as_recorded, digest
from tests.refusals import refusals

#: What Megatron-LM calls the letters.
NAMES = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}

test_files_are_as_stored = check_exports("megatron")


def test_models_are_written_or_refused_as_recorded() -> None:
    """Every published architecture: its arguments, and the fields of Megatron-Bridge's provider."""
    figures: dict[str, object] = {}
    for name in workload_catalogue():
        instance = instance_of(f"catalogue: {name}, sequence_length: 512")
        job = replace(UNEVEN, instance=UNEVEN.instance.but(workload=instance.workload))
        refused = list(map(": ".join, model_obstacles(instance, "megatron")))
        written = [f"{option} {value}" for option, value in megatron.model(job).items() if value]
        figures[name] = refused or written
        figures[f"{name}: provider"] = digest({n: str(v) for n, v in provided(job).items()})
    as_recorded("models", figures)


@pytest.mark.parametrize(("name", "line"), [("uneven", False), ("tensor", True)])
def test_bug_megatron_ended_jobs_with_tensor_groups_at_start(name: str, line: bool) -> None:
    """Before Blackwell it asserts that kernels are queued in one order."""
    script = megatron.files(JOBS[name])["torchrun.sh"]
    assert ("CUDA_DEVICE_MAX_CONNECTIONS" in script) == line


def test_layouts_are_judged_as_by_megatron(reference: Path) -> None:
    """Each case of the reference: the same verdict, and the same parse."""
    cases = json.loads((reference / "megatron/layout.json").read_text())["cases"]
    assert len(cases) >= 10
    for case in cases:
        sizes = case["pp"], case["num_layers"], case["mtp_num_layers"] or 0
        if not case["valid"]:
            with pytest.raises(ValueError, match=r"layer|block|letter|piece"):
                parsed(case["layout"], *sizes)
            continue
        pieces, pp = parsed(case["layout"], *sizes), sizes[0]
        named = [[NAMES[letter] for letter in piece] for piece in pieces]
        assert [named[k::pp] for k in range(pp)] == case["stages"]


@pytest.mark.parametrize("seed", range(20))
def test_written_layouts_are_read_back(seed: int) -> None:
    """Any cut of any number of blocks into pieces, with chunks."""
    rng = random.Random(seed)
    pp, vpp, num = rng.randint(1, 5), rng.randint(1, 3), rng.randint(0, 30)
    last = pp * vpp - 1
    bounds = [0, *sorted(rng.randint(0, num) for _ in range(last)), num]
    pieces = [Piece(i == 0, range(bounds[i], bounds[i + 1]), i == last) for i in range(pp * vpp)]
    for text, piece in zip(parsed(written(pieces), pp, num), pieces, strict=True):
        assert text == "E" * piece.embedding + "t" * len(piece.blocks) + "L" * piece.head


@refusals("layouts")
def test_layout_that_is_refused(text: str, message: str) -> None:
    """In words; text: the layout, the ranks, the blocks and the layers of multi-token prediction.

    These may stand on a rank of their own.
    """
    assert parsed("Etm|t*0|t*0L", 3, 1, 1)[0] == "Etm"
    layout, *sizes = text.split()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parsed(layout, *map(int, sizes))
