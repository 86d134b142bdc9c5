"""Megatron-LM's arguments: what they say is the plan; layouts as Megatron-LM reads them."""

import json
import random
from pathlib import Path

import pytest

from formulations.plan import Degrees
from solver.export import megatron, megatron_bridge
from solver.export.job import Job, Piece
from solver.export.megatron import parsed, written
from solver.export.registry import EXPORTERS
from tests.export.stored import JOBS, cases, check_stored
from tests.export_cases import (
    UNEVEN,
    UNTIED,
    WHOLE_EXPERTS,
    instance_of,
    job_of,
    plan_of,
    recomputing,
)

MEGATRON = EXPORTERS["megatron"]


@cases("megatron")
def test_files_are_as_stored(name: str) -> None:
    """Degrees, batches and strategies; nothing that a layout excludes."""
    check_stored("megatron", name)


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (recomputing(UNEVEN, (3, 0, 0, 0)), "recompute_per: stage is not for Megatron-LM"),
        (
            job_of(workload="catalogue: t5-3b", cuts=(0, 12, 24, 36, 50)),
            "layers: an encoder and a decoder is not",
        ),
    ],
)
def test_what_megatron_cannot_express(job: Job, line: str) -> None:
    """Each is refused with what to write instead."""
    fault = MEGATRON.faults(job)[0]
    assert line in fault.found
    assert "solve again" in fault.change or "one stack" in fault.change


@pytest.mark.parametrize("fused", [True, False])
def test_loss_is_fused_where_the_memory_counts_on_it(fused: bool) -> None:
    """Megatron-LM's arguments and Megatron-Bridge's recipe ask for it, and only then."""
    job = job_of(workload=f"{UNTIED}, fused_cross_entropy: {fused}".lower())
    texts = (
        megatron.files(job)["megatron_args.txt"],
        megatron_bridge.files(job)["planned_recipe.py"],
    )
    words = "--cross-entropy-loss-fusion", "model.cross_entropy_loss_fusion = True"
    assert [word in text for word, text in zip(words, texts, strict=True)] == [fused] * 2


@pytest.mark.parametrize(("name", "line"), [("uneven", False), ("tensor", True)])
def test_bug_megatron_ended_jobs_with_tensor_groups_at_start(name: str, line: bool) -> None:
    """Before Blackwell it asserts that kernels are queued in one order."""
    script = megatron.files(JOBS[name])["torchrun.sh"]
    assert ("CUDA_DEVICE_MAX_CONNECTIONS" in script) == line


@pytest.mark.parametrize(
    ("precision", "split", "tp", "found"),
    [
        ("bf16", "true", 2, []),
        ("bf16", "false", 1, []),
        ("fp16", "true", 2, ["expert_parallel: 2 is"]),
        ("bf16", "false", 2, ["sequence_parallel: false is"]),
    ],
)
def test_bug_megatron_ended_jobs_with_experts_at_start(
    precision: str, split: str, tp: int, found: list[str]
) -> None:
    """Experts in fp16, and in tensor groups without sequence parallelism."""
    workload = f"catalogue: mixtral-8x7b, sequence_length: 512, precision: {precision}"
    search = f"target: any, expert_parallel: 4, sequence_parallel: {split}"
    instance, dp = instance_of(workload, search), 4 // tp
    degrees, shares = (Degrees(tp=tp),) * 2, (16 // (2 * dp),) * dp
    plan = plan_of(instance, (0, 17, 34), dp=dp, pp=2, ep=dp, degrees=degrees, shares=shares)
    lines = [fault.found for fault in MEGATRON.faults(Job(instance, plan))]
    assert [line[: len(start)] for line, start in zip(lines, found, strict=True)] == found


def test_bug_megatron_ended_jobs_that_split_experts_with_biases() -> None:
    """Its assertion on gpt-oss: there tensor groups have whole experts."""
    instance = WHOLE_EXPERTS.instance.but(workload={"expert_biases": True})
    split = plan_of(instance, (0, 17, 34), tp=2, pp=2, ep=2)
    (fault,) = MEGATRON.faults(Job(instance, split))
    assert fault.found.startswith("expert_tensor_parallel: tp is not for Megatron-LM")
    assert list(MEGATRON.faults(Job(instance, WHOLE_EXPERTS.plan))) == []


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


@pytest.mark.parametrize("seed", range(20))
def test_written_layouts_are_read_back(seed: int) -> None:
    """Any cut of any number of blocks into pieces, with chunks."""
    rng = random.Random(seed)
    pp, vpp, num = rng.randint(1, 5), rng.randint(1, 3), rng.randint(0, 30)
    last = pp * vpp - 1
    bounds = [0, *sorted(rng.randint(0, num) for _ in range(last)), num]
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
        ("Ettm|t*0|t*0|L", 2, 2, 1, "not the last chunk of its rank"),
        ("Et*99999999|L", 2, 1, 0, "a layout of more than"),
    ],
)
def test_layout_that_is_refused(layout: str, pp: int, layers: int, mtp: int, words: str) -> None:
    """In words; multi-token prediction may stand on a rank of its own."""
    assert parsed("Etm|t*0|t*0L", 3, 1, 1)[0] == [["embedding", "decoder", "mtp"]]
    with pytest.raises(ValueError, match=words):
        parsed(layout, pp, layers, mtp)
