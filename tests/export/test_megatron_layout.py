"""Layouts and rank groups as Megatron-LM reads them."""

import json
import random
from pathlib import Path

import pytest

from solver.export.job import Piece
from solver.export.megatron import parsed, rank_groups, written


def test_layouts_are_judged_as_by_megatron(reference: Path) -> None:
    """Each case of the reference: the same verdict, and the same parse."""
    cases = json.loads((reference / "megatron/layout.json").read_text())["cases"]
    assert len(cases) >= 10
    for case in cases:
        sizes = case["pp"], case["num_layers"], case["mtp_num_layers"]
        if not case["valid"]:
            with pytest.raises(ValueError, match=r"layer|block|letter|piece"):
                parsed(case["layout"], *sizes)
            continue
        found = parsed(case["layout"], *sizes)
        assert found.stages == case["stages"]
        assert (found.vpp, found.mtp_standalone) == (case["vpp"], case["mtp_standalone"])


def test_rank_groups_are_megatrons(reference: Path) -> None:
    """Each group of the reference, of experts too, rank by rank."""
    cases = json.loads((reference / "megatron/ranks.json").read_text())["cases"]
    assert len(cases) >= 6
    for case in cases:
        dense = {name: case[name] for name in ("tp", "cp", "dp", "pp")}
        experts = {"tp": case["etp"], "ep": case["ep"], "dp": case["edp"], "pp": case["pp"]}
        for sizes, groups in ((dense, case["groups"]), (experts, case["expert_groups"])):
            for dimensions, ranks in groups.items():
                assert rank_groups(sizes, dimensions, case["order"]) == ranks


def test_pipeline_first_order() -> None:
    """With --use-tp-pp-dp-mapping, rank = t + tp (p + pp d)."""
    sizes, order = {"tp": 2, "dp": 2, "pp": 2}, "tp-cp-ep-pp-dp"
    assert rank_groups(sizes, "pp", order) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert rank_groups(sizes, "dp", order) == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_layout_of_a_plan() -> None:
    """9, 7, 5 and 3 blocks, as in Megatron-LM's documentation; a stage of the embedding alone."""
    cuts = [range(9), range(9, 16), range(16, 21), range(21, 24)]
    pieces = [Piece(i == 0, cut, i == 3) for i, cut in enumerate(cuts)]
    assert written(pieces) == "Et*9|t*7|t*5|t*3L"
    alone = [Piece(True, range(0), False), Piece(False, range(1), False)]
    assert written([*alone, Piece(False, range(1, 3), True)]) == "E|t|t*2L"


@pytest.mark.parametrize("seed", range(20))
def test_written_layouts_are_read_back(seed: int) -> None:
    """Any cut of any number of blocks into pieces, with chunks."""
    rng = random.Random(seed)
    pp, vpp, num = rng.randint(1, 5), rng.randint(1, 3), rng.randint(0, 30)
    cuts = sorted(rng.randint(0, num) for _ in range(pp * vpp - 1))
    bounds = [0, *cuts, num]
    last = pp * vpp - 1
    pieces = [Piece(i == 0, range(bounds[i], bounds[i + 1]), i == last) for i in range(pp * vpp)]
    stages = parsed(written(pieces), pp, num).stages
    for i, piece in enumerate(pieces):
        names = ["embedding"] * piece.embedding + ["decoder"] * len(piece.blocks)
        assert stages[i % pp][i // pp] == names + ["loss"] * piece.head


@pytest.mark.parametrize(
    ("layout", "pp", "layers", "mtp", "words"),
    [
        ("Ett|tL", 2, 2, None, "3 blocks t, where the model has 2"),
        ("Et|t|L", 2, 2, None, "3 pieces, which 2 pipeline ranks do not divide"),
        ("tE|tL", 2, 2, None, "one E, the first letter"),
        ("Et|Lt", 2, 2, None, "one L, the last one"),
        ("Et|EtL", 2, 2, None, "one E"),
        ("Ex|tL", 2, 1, None, "the letter 'x'"),
        ("Et|tmL", 2, 2, None, "1 layers m, where the model has 0"),
        ("Ett|m|mL", 3, 2, 2, "layers m in 2 pieces"),
        ("Etm|t*0L", 2, 1, 1, None),
        ("Et*99999999|L", 2, 1, None, "a layout of more than"),
    ],
)
def test_layout_that_is_refused(
    layout: str, pp: int, layers: int, mtp: int | None, words: str | None
) -> None:
    """In words; multi-token prediction may stand on a rank of its own."""
    if words is None:
        assert parsed(layout, pp, layers, mtp).mtp_standalone
        return
    with pytest.raises(ValueError, match=words):
        parsed(layout, pp, layers, mtp)
