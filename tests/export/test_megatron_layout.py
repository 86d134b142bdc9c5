"""Layouts and rank groups as Megatron-LM reads them."""

import json
import random
from pathlib import Path

import pytest

from solver.export.job import Piece
from solver.export.megatron import parsed, written


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
        assert parsed(case["layout"], *sizes) == case["stages"]


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
    stages = parsed(written(pieces), pp, num)
    for i, piece in enumerate(pieces):
        names = ["embedding"] * piece.embedding + ["decoder"] * len(piece.blocks)
        assert stages[i % pp][i // pp] == names + ["loss"] * piece.head


@pytest.mark.parametrize(
    ("layout", "pp", "layers", "mtp", "words"),
    [
        ("Ett|tL", 2, 2, 0, "3 blocks t, where the model has 2"),
        ("Et|t|L", 2, 2, 0, "3 pieces, which 2 pipeline ranks do not divide"),
        ("tE|tL", 2, 2, 0, "one E, the first letter"),
        ("Et|Lt", 2, 2, 0, "one L, the last one"),
        ("Et|EtL", 2, 2, 0, "one E"),
        ("Ex|tL", 2, 1, 0, "the letter 'x'"),
        ("Et|tmL", 2, 2, 0, "1 layers m, where the model has 0"),
        ("Emt|tL", 2, 2, 1, "a block t after a layer m"),
        ("Ett|m|mL", 3, 2, 2, "layers m in 2 pieces"),
        ("Etm|t*0|t*0L", 3, 1, 1, None),
        ("Ettm|t*0|t*0|L", 2, 2, 1, "not the last chunk of its rank"),
        ("Et*99999999|L", 2, 1, 0, "a layout of more than"),
    ],
)
def test_layout_that_is_refused(
    layout: str, pp: int, layers: int, mtp: int, words: str | None
) -> None:
    """In words; multi-token prediction may stand on a rank of its own."""
    if words is None:
        assert parsed(layout, pp, layers, mtp)[0] == [["embedding", "decoder", "mtp"]]
        return
    with pytest.raises(ValueError, match=words):
        parsed(layout, pp, layers, mtp)
