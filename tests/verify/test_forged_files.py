"""No field of a plan file can be changed unnoticed."""

import json
from collections.abc import Iterator
from functools import cache
from zlib import crc32

import pytest
from pydantic import ValidationError

from formulations.costs.tables import build_tables
from solver.document import RECORDED, PlanDocument
from solver.result import ConfigRecord, max_step_time_ns
from solver.verify import Effort, verify_document
from tests import brute_force
from tests.certified_cases import CASES
from tests.mutations import Mutation, mutations
from tests.seeds import one_each

LOG = ("closed_configs",)

#: Cases that together have all fields outside the instance; the others are slow.
DEFAULT = ("pipelined", "on_spot", "idle", "infeasible", "interleaved")
EACH_CASE = [
    case if case in DEFAULT else pytest.param(case, marks=pytest.mark.slow) for case in CASES
]

#: Into which the fields of the instance are divided; one by default, the others slow.
PARTS = 6

#: Cases whose instance is changed too: they use every field, what the others use is in these.
#: Those that use most come first, as a field that is known to count is left alone after that.
CHANGED_INSTANCES = (
    "whole_experts",
    "shared",
    "sharded",
    "split_sequence",
    "interleaved",
    "split_backward",
    "on_spot",
    "cheapest",
    "tensor_parallel",
    "pipelined",
    "zones",
)

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


def read(mutation: Mutation, document: PlanDocument) -> PlanDocument | None:
    """The changed file; None if it cannot be read, or says the same (0.0 and -0.0)."""
    try:
        changed = PlanDocument.model_validate_json(json.dumps(mutation.value))
    except ValidationError:
        return None
    return None if changed == document else changed


def only_digest(found: tuple[str, ...]) -> bool:
    """Whether nothing but the digest is found wrong."""
    return all(line.startswith("digest: ") for line in found)


def refusals(changed: PlanDocument) -> tuple[str, ...]:
    """What is found wrong; the proofs are looked at only if everything else but the digest fits."""
    found = verify_document(changed, Effort(prove="nothing")).problems
    return verify_document(changed).problems if only_digest(found) else found


def changes(
    case: str, *, of_instance: bool, part: int | None = None
) -> Iterator[tuple[Mutation, PlanDocument]]:
    """All changes of the instance of a case, or of the rest of its file, that can be read.

    part: only of fields of this part.
    """
    document = CASES[case]()
    for mutation in mutations(document.model_dump(mode="json")):
        asked = part is None or part_of(mutation.field) == part
        if asked and (mutation.path[0] == "instance") is of_instance:
            changed = read(mutation, document)
            if changed is not None:
                yield mutation, changed


@cache
def accepted(case: str) -> list[Mutation]:
    """Changes of which only the digest tells: a forger would make it anew.

    Of the plan one of each field is tried, of the log all.
    """
    passed, tried = list[Mutation](), set[str]()
    for mutation, changed in changes(case, of_instance=False):
        if mutation.path == ("digest",) or mutation.field in tried:
            continue
        if mutation.path[0] not in LOG:
            tried.add(mutation.field)
        if only_digest(refusals(changed)):
            passed.append(mutation)
    return passed


@cache
def best_ns(case: str, index: int) -> int | None:
    """Step time of the best plan, within the limits, of the config of a log record; None: none."""
    document = CASES[case]()
    config = document.closed_configs[index].config
    best = brute_force.optimum_ns(build_tables(document.instance, config))
    limit = max_step_time_ns(document.instance, config)
    return None if best is None or (limit is not None and best > limit) else best


def is_true(case: str, index: int, record: ConfigRecord) -> bool:
    """Whether a record of the log claims no more than brute force finds."""
    best = best_ns(case, index)
    return best is None or (record.bound_ns is not None and record.bound_ns <= best)


def harmless(case: str, mutation: Mutation) -> bool:
    """Whether a change of the log leaves it true.

    Order means nothing. Bounds may be lowered: the least of all is compared with the claim.
    """
    document = CASES[case]()
    if mutation.path in [(name,) for name in LOG]:
        return mutation.what.endswith("swapped")
    changed, index = read(mutation, document), mutation.path[1]
    assert changed is not None
    assert isinstance(index, int)
    record = changed.closed_configs[index]
    return is_true(case, index, record)


@pytest.mark.parametrize("case", EACH_CASE)
def test_change_of_the_plan_is_refused_under_a_new_digest(case: str) -> None:
    """Every field outside instance and log is derived again, but those of RECORDED."""
    passed = [
        str(mutation) for mutation in accepted(case) if mutation.path[0] not in (*LOG, *RECORDED)
    ]
    assert passed == []


@pytest.mark.parametrize("case", EACH_CASE)
def test_change_of_the_log_is_refused_under_a_new_digest_unless_true(case: str) -> None:
    """A log that verifies after a change claims what is true."""
    passed = [
        str(mutation)
        for mutation in accepted(case)
        if mutation.path[0] in LOG and not harmless(case, mutation)
    ]
    assert passed == []


def part_of(field: str) -> int:
    """In which of the parts a field is tried."""
    return crc32(field.encode()) % PARTS


@pytest.mark.parametrize("part", one_each(range(PARTS), PARTS))
def test_every_field_of_the_instance_is_tied_to_the_plan(part: int) -> None:
    """Each field of the instance, but the UNUSED, breaks some case when it is changed.

    Of the unused one change per case is enough: which one does not matter.
    """
    fields, broken = set[str](), set[str]()
    for case in CHANGED_INSTANCES:
        done = set(broken)
        for mutation, changed in changes(case, of_instance=True, part=part):
            if mutation.field in done:
                continue
            fields.add(mutation.field)
            if not only_digest(refusals(changed)):
                broken.add(mutation.field)
            if mutation.field in broken | UNUSED.keys():
                done.add(mutation.field)
    assert fields - broken == {field for field in UNUSED if part_of(field) == part}
