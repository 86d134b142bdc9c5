"""No field of an instance can be changed unnoticed in a plan file, but for those named here."""

from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any

import pytest

from solver.document import PlanDocument
from solver.verify import Effort, verify_document
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
