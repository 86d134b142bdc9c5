"""Argument files of Megatron-LM: how they are read, and which flags are refused."""

import pytest

from formulations.errors import PlanError
from solver.evaluate.launched import Settings
from solver.evaluate.megatron_flags import Flag, read_flags
from tests.conftest import text_of
from tests.refusals import check_refusals


def read(text: str) -> Settings:
    return read_flags(text, "a.txt")


def test_flags_stand_as_on_a_command_line() -> None:
    """Several a line, with =, over the end of a line, with remarks; lines are told."""
    flags = read("--bf16 --seq-length=128  # a remark\n--recompute-modules core_attn \\\n  mlp\n")
    assert flags.number(Flag.LENGTH, 1) == 128
    assert flags.has(Flag.BF16)
    assert flags.stated[Flag.MODULES].values == ("core_attn", "mlp")
    assert (flags.place(Flag.LENGTH), flags.place(Flag.MODULES)) == ("a.txt:1", "a.txt:2")
    assert (flags.place(Flag.TP), flags.number(Flag.TP, 3)) == ("a.txt", 3)
    assert (flags.optional(Flag.TP), flags.optional(Flag.LENGTH)) == (None, 128)
    assert str(flags.error(Flag.PP, "2", ", alone")) == f"a.txt: no {Flag.PP}, alone; allowed: 2"


def test_flags_of_the_model_are_left_alone() -> None:
    text = text_of("flags_left_alone.txt")
    assert read(text).stated == {}


test_refused = check_refusals("flags", lambda text: read(text).number(Flag.TP, 1))


def test_flags_that_exclude_each_other() -> None:
    flags = read("--bf16\n--fp16")
    flags.exclude(Flag.BF16, Flag.SEQUENCE)
    with pytest.raises(PlanError, match=r"^a\.txt:2: --fp16, beside --bf16 \(a\.txt:1\); allowed"):
        flags.exclude(Flag.BF16, Flag.FP16)
