"""What training in a precision keeps and sends, in bytes.

fp16, bf16: mixed precision with an fp32 master copy (Micikevicius et al., ICLR 2018). fp32, tf32:
all is kept in 32 bit, so Adam has its two moments and no copy; tf32 differs in the products. fp8:
the blocks' products run in 8 bit (Micikevicius et al. 2022, arXiv 2209.05433); Transformer Engine
keeps parameters, activations and messages in 16 bit, and per parameter one 8-bit copy for each of
the two ways in which products read it, over all micro-batches of a step. Attention and head stay in
16 bit.
"""

from typing import Literal, NamedTuple

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16", "fp8")

#: In which fused attention has kernels (Dao et al. 2022; Dao 2023; fp8 keeps it in 16 bit).
FLASH_PRECISIONS: tuple[Precision, ...] = ("fp16", "bf16", "fp8")

MASTER_BYTES = 4  # per parameter, of the optimizer's fp32 copy


class Formats(NamedTuple):
    """Bytes per parameter and per element of activations and messages."""

    parameter_bytes: int
    copy_bytes: int  #: of parameters, for products; never sent, never updated
    element_bytes: int
    master_bytes: int


_WHOLE = Formats(4, 0, 4, 0)
_MIXED = Formats(2, 0, 2, MASTER_BYTES)

FORMATS: dict[Precision, Formats] = {
    "fp32": _WHOLE,
    "tf32": _WHOLE,
    "fp16": _MIXED,
    "bf16": _MIXED,
    "fp8": _MIXED._replace(copy_bytes=2),
}
