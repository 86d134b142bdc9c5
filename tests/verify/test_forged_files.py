"""No field of a plan file can be changed unnoticed: one change of every field, chosen at random."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain, islice
from math import inf
from typing import Any

import pytest

from formulations.costs.tables import build_tables
from formulations.plan import Configuration
from solver.document import RECORDED, PlanDocument
from solver.result import max_step_time_ns
from solver.verify import Effort, verify_document
from tests import brute_force
from tests.certified_cases import CASES
from tests.seeds import one_each
from tests.verify import forgeries

#: Fields of the instance on which no constraint, cost or bound depends.
UNUSED = {
    "instance.name": "a label",
    "instance.source": "free text",
    "instance.workload.name": "a label",
    "instance.workload.source": "free text",
    "instance.workload.hidden_size": "in the bytes of messages",
    "instance.workload.parameters": "the published count; costs add up the layers",
    "instance.workload.layer_runs.layer.flash_bytes": "told to who could switch it on",
    "instance.profile.completed": "counts only where a profile lacks a curve",
    "instance.workload.mtp_layers": "said again by the head, which has them; for exports",
    "instance.workload.expert_biases": "in the layers; who may split them depends on the target",
    "instance.workload.flash_attention": "said again by the layers, which keep no scores",
    "instance.cluster.groups.gpu.compute_capability": "decides defaults when a file is read",
    "instance.workload.tied_embeddings": "said again by the layers' tied_copy",
    "instance.cluster.groups.gpu.link.bandwidth_bytes_per_s": "only the default of intra_node",
    "instance.cluster.groups.gpu.link.latency_s": "only the default of intra_node",
    "instance.cluster.groups.gpu.link.source": "only the default of intra_node",
    "instance.search.overlap.source": "free text",
    "instance.cluster.zone_link.source": "free text",
    "instance.cluster.groups.spot.source": "free text",
    "instance.preemption.source": "free text",
}


@cache
def changes(case: str) -> dict[str, list[tuple[str, Any]]]:
    """Those of its file."""
    return forgeries.changes(CASES[case]())


def forged_files(case: str, field: str) -> Iterator[PlanDocument]:
    """Those of changes of a field."""
    return forgeries.forgeries(CASES[case](), changes(case).get(field, []))


def passes(forged: PlanDocument) -> bool:
    """Whether it verifies; proofs are looked at only if everything else does."""
    quickly = verify_document(forged, Effort(prove="nothing")).problems
    return not quickly and not verify_document(forged).problems


@cache
def best_ns(case: str, config: Configuration) -> float:
    """Step time of the best plan, within the limits; infinite if there is none."""
    instance = CASES[case]().instance
    best, limit = (
        brute_force.optimum_ns(build_tables(instance, config)),
        max_step_time_ns(instance, config),
    )
    return inf if best is None or (limit is not None and best > limit) else best


def is_true(case: str, forged: PlanDocument) -> bool:
    """Whether nothing but the log is another, which claims no more of each config than is true."""
    files = CASES[case](), forged
    logs = [Counter(record.config for record in file.closed_configs) for file in files]
    emptied = {str(file.but(closed_configs=(), digest="")) for file in files}
    return (
        all(
            (inf if record.bound_ns is None else record.bound_ns) <= best_ns(case, record.config)
            for record in forged.closed_configs
        )
        and logs[0] == logs[1]
        and len(emptied) == 1
    )


@pytest.mark.parametrize("case", one_each(list(CASES), 4))
def test_changes_outside_the_instance_are_refused_unless_true(case: str) -> None:
    """Every field is derived again, but those of RECORDED; a log that passes claims what is true.

    Of the log ten changes of each field are tried.
    """
    for field in changes(case):
        name = field.partition(".")[0]
        if name not in ("instance", "digest", *RECORDED):
            number = 10 if name == "closed_configs" else 1
            for forged in islice(forged_files(case, field), number):
                assert not passes(forged) or is_true(case, forged), field


@pytest.mark.parametrize("seed", one_each(range(8), 8))
def test_every_field_of_the_instance_is_tied_to_the_plan(seed: int) -> None:
    """Each, but the UNUSED, breaks some case when it is changed; a few of them are drawn."""
    every = sorted({f for case in CASES for f in changes(case) if f.startswith("instance.")})
    for field in every[seed::8]:
        # of the unused one change per case is enough
        number = 1 if field in UNUSED else None
        each = (list(forged_files(case, field))[:number] for case in reversed(CASES))
        broken = any(not passes(forged) for forged in chain.from_iterable(each))
        readable = any(next(forged_files(case, field), None) for case in CASES)
        assert broken == (field not in UNUSED and readable), field
