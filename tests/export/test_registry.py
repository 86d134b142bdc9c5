"""Who takes which plan, whatever the framework."""

from typing import Any

import pytest

from formulations.errors import PlanError
from formulations.plan import Degrees
from formulations.space.launch import model_obstacles
from solver.export.job import Job
from solver.export.registry import EXPORTERS, exported
from tests.export.read_back import check_files
from tests.export_cases import (
    JOBS,
    ONE_STAGE,
    TENSOR,
    UNEVEN,
    UNTIED,
    WHOLE_EXPERTS,
    instance_of,
    job_of,
    plan_of,
    recomputing,
)
from tests.recorded import as_recorded


def mixtral(precision: str, split: bool, tp: int) -> Job:
    """Experts shared by two or four replicas, in tensor groups that split sequences or do not."""
    workload = f"catalogue: mixtral-8x7b, sequence_length: 512, precision: {precision}"
    search = f"target: any, expert_parallel: 4, sequence_parallel: {str(split).lower()}"
    instance, dp = instance_of(workload, search), 4 // tp
    plan: dict[str, Any] = {"dp": dp, "pp": 2, "ep": dp, "shares": (16 // (2 * dp),) * dp}
    return Job(instance, plan_of(instance, (0, 17, 34), degrees=(Degrees(tp=tp),) * 2, **plan))


BIASES = WHOLE_EXPERTS.instance.but(workload={"expert_biases": True})
MORE = {
    "tied": job_of(),  # embeddings on several stages
    "gpipe": job_of(workload=UNTIED, schedule="gpipe"),
    "one block": recomputing(UNEVEN, (3, 0, 0, 0)),
    "one stage, zero 1": job_of(workload=UNTIED, zero=1, **ONE_STAGE),
    "unlike shares": job_of(workload=UNTIED, shares=(5, 3)),
    "no zero, tensor": job_of(workload=UNTIED, zero=0, **TENSOR),
    "t5": job_of(workload="catalogue: t5-3b", cuts=(0, 12, 24, 36, 50)),
    # what once ended jobs at start: experts in fp16, in tensor groups without sequence parallelism,
    # with biases in tensor groups that split them
    "experts": mixtral("bf16", split=True, tp=2),
    "experts, whole sequences": mixtral("bf16", split=False, tp=1),
    "experts, fp16": mixtral("fp16", split=True, tp=2),
    "experts, whole sequences, tensor": mixtral("bf16", split=False, tp=2),
    "biases": Job(BIASES, plan_of(BIASES, (0, 17, 34), tp=2, pp=2, ep=2)),
    "biases, whole": Job(BIASES, WHOLE_EXPERTS.plan),
    # what once ran in fp32
    "fp8": Job(UNEVEN.instance.but(workload={"precision": "fp8"}), UNEVEN.plan),
    "gradients": job_of(workload=f"{UNTIED}, gradient_precision: bf16"),
}


def test_who_takes_which_plan_is_recorded() -> None:
    """Whoever takes it writes files that sum to the plan; the others say what to change, or who."""
    figures = {}
    for name, job in (JOBS | MORE).items():
        for target, exporter in EXPORTERS.items():
            unbuilt = [*model_obstacles(job.instance, exporter.launcher), *exporter.builds(job)]
            for own_model in (False, True)[: 1 + bool(unbuilt)]:
                case = f"{name}: {target}{' --own-model' * own_model}"
                try:
                    texts = exported(job.instance, job.plan, target, "plan.json", own_model)
                    check_files(target, job, texts)
                    figures[case] = f"{len(texts)} files"
                except PlanError as error:
                    figures[case] = str(error)
    as_recorded("exports", figures)


def test_own_models_are_neither_refused_nor_written() -> None:
    """BERT is no causal model: without its flag, Megatron-LM's export says which option to take."""
    job = job_of(workload="catalogue: bert-base", cuts=(0, 4, 7, 9, 14))
    with pytest.raises(PlanError, match=r"embedding_norm: true .* allowed: --own-model"):
        exported(job.instance, job.plan, "megatron", "plan.json")
    texts = exported(job.instance, job.plan, "megatron", "plan.json", own_model=True)
    assert texts["README.md"].endswith("Yours: data, optimizer and the model.\n")
    assert "--hidden-size" not in texts["megatron_args.txt"]
