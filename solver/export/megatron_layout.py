"""Megatron-LM's `--pipeline-model-parallel-layout`: written for a plan, and judged as it does.

Grammar: pieces apart by `|`; E embedding, t block, m multi-token prediction, L loss; `x*n` and
`(...)*n` repeat, commas are ignored. Piece i goes to pp rank i mod pp as its chunk i div pp.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from solver.export.job import Piece

#: Letters of the grammar, with Megatron-LM's names.
LAYERS = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}
_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))
_MOST = 1 << 20  # letters of a layout that is written out


class Layout(NamedTuple):
    """A layout that Megatron-LM takes.

    stages: by pp rank, by chunk, the layers by name.
    """

    stages: list[list[list[str]]]
    mtp_standalone: bool  #: is the prediction of further tokens on another rank than the loss?

    @property
    def vpp(self) -> int:
        """Chunks per rank."""
        return len(self.stages[0])


def written(pieces: Sequence[Piece], num_mtp: int = 0) -> str:
    """The layout of pieces, such as `Et*9|t*7|t*5|t*3L`; the head predicts further tokens."""
    ends = ["m" * num_mtp + "L" if piece.head else "" for piece in pieces]
    return "|".join(
        "E" * piece.embedding + _blocks(len(piece.blocks)) + end
        for piece, end in zip(pieces, ends, strict=True)
    )


def _blocks(number: int) -> str:
    return "t" * number if number <= 1 else f"t*{number}"


def parsed(text: str, pp: int, num_layers: int, num_mtp: int | None = None) -> Layout:
    """The layout that Megatron-LM reads. Raises ValueError, in words, where it would refuse."""
    pieces = _written_out(text).split("|")
    unknown = set("".join(pieces)) - set(LAYERS)
    if unknown:
        raise ValueError(f"the letter {min(unknown)!r}, where {', '.join(LAYERS)} are known")
    if len(pieces) % pp:
        raise ValueError(f"{len(pieces)} pieces, which {pp} pipeline ranks do not divide")
    chain = "".join(pieces)
    _check_chain(chain, num_layers, num_mtp or 0)
    _check_prediction(pieces, pp, num_mtp or 0)
    stages = [[[LAYERS[one] for one in piece] for piece in pieces[k::pp]] for k in range(pp)]
    return Layout(stages, any("mtp" in chunks[-1] for chunks in stages[:-1]))


def _written_out(text: str) -> str:
    """The layout without repetitions and commas."""
    plain = text.replace(",", "")
    for pattern in _REPEATED:
        if sum(len(one[1]) * int(one[2]) for one in pattern.finditer(plain)) > _MOST:
            raise ValueError(f"a layout of more than {_MOST} letters")
        plain = pattern.sub(lambda found: found[1] * int(found[2]), plain)
    return plain


def _check_chain(chain: str, num_layers: int, num_mtp: int) -> None:
    """Embedding first, loss last, blocks and predictions as many as the model has, in order."""
    if chain[:1] != "E" or chain[-1:] != "L" or chain.count("E") > 1 or chain.count("L") > 1:
        raise ValueError("one E, the first letter, and one L, the last one, are needed")
    if chain.count("t") != num_layers:
        raise ValueError(f"{chain.count('t')} blocks t, where the model has {num_layers}")
    if chain.count("m") != num_mtp:
        raise ValueError(f"{chain.count('m')} layers m, where the model has {num_mtp}")
    if "m" in chain and "t" in chain[chain.index("m") :]:
        raise ValueError("a block t after a layer m")


def _check_prediction(pieces: Sequence[str], pp: int, num_mtp: int) -> None:
    """All layers m in one piece, the last chunk of its rank."""
    held = [i for i, piece in enumerate(pieces) if "m" in piece]
    if len(held) > 1:
        raise ValueError(f"layers m in {len(held)} pieces, where one has all {num_mtp}")
    if held and held[0] < len(pieces) - pp:
        raise ValueError("layers m in a piece that is not the last chunk of its rank")
