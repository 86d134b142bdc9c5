"""What fleets make of every field of `search` and `limits`, in the search and in `verify`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from formulations.errors import InstanceError, NoPlanError
from formulations.instance import Instance
from formulations.instance.instance import LimitsFile
from formulations.instance.load import parse_instance
from formulations.instance.search import Overlap, SearchFile
from solver.fleet_document import FleetDocument
from solver.fleets.designs import designs_of, generator_for
from solver.fleets.fleet import start_fleet
from solver.templates.generate import TemplateOptions
from solver.verify import verify_fleet
from tests.command_line import run
from tests.conftest import ROOT, present, text_of
from tests.refusals import refusals
from tests.verify.forgeries import resealed

#: Four layers and four GPUs on two nodes. What is asked of fleets follows.
TEXT = text_of("spaces/fields.yaml")
LIMITS = ("memory_headroom", "framework_reserve")
ALONE = {"tensor_parallel": (1,), "embedding_only_stages": False}

#: Attributes of instances, so that a fleet of the first ones keeps to no other ones.
HONOURED: Mapping[str, tuple[dict[str, Any], ...]] = {
    "tensor_parallel": ({"tensor_parallel": (2,)}, {"tensor_parallel": (1,)}),
    "micro_batch": ({"micro_batch": (1,)}, {"micro_batch": (2,)}),
    "recompute": ({"recompute": ("full",)}, {"recompute": ("none",)}),
    "recompute_per": ({"recompute_per": "stage"}, {"recompute_per": "plan"}),
    "sequence_parallel": ({"sequence_parallel": True}, {"sequence_parallel": False}),
    "schedule": ({"schedule": ("gpipe",)}, {"schedule": ("1f1b",)}),
    "embedding_only_stages": (ALONE | {"embedding_only_stages": True}, ALONE),
    "blocking_sends": ({"blocking_sends": False}, {"blocking_sends": True}),
    "scatter_gather": ({"scatter_gather": True}, {"scatter_gather": False}),
    "overlap": ({"overlap": Overlap(tensor_parallel=0.5)}, {"overlap": Overlap()}),
    "memory_headroom": ({"memory_headroom": 0.0}, {"memory_headroom": 0.99}),
    "framework_reserve": tuple({"framework_reserve_bytes": 1 << n} for n in (30, 36)),
}
#: Of which fleets take some values, or none: tests/data/refused/fleets.txt has the others.
REFUSED = {
    *("data_parallel", "pipeline_parallel", "context_parallel", "expert_parallel"),
    *("expert_tensor_parallel", "zero", "optimizer_instances"),
    *("schedule", "virtual_pipeline", "idle_nodes"),
    "microbatch_group",
    *("max_step_time", "max_cost_per_step", "max_price_per_hour"),
}
#: Of replicas alike, or of degrees that fleets do not have: docs/failures.md says so.
SAID = {"target", "degrees", "micro_batches", "context_method", "sync_each_batch"}


def with_fields(field: str, changes: Mapping[str, Any]) -> Instance:
    """The instance with stages of two GPUs, and these attributes."""
    instance = parse_instance(f"{TEXT}search: {{target: any}}\n", "x.yaml", Path())
    usual = {"tensor_parallel": (2,), "micro_batch": (1,), "sequence_parallel": False}
    instance = instance.but(search=usual)
    return instance.but(**{"limits" if field in LIMITS else "search": dict(changes)})


def fleet_of(instance: Instance) -> FleetDocument | None:
    """One pipeline on both nodes; None where none fits."""
    try:
        generator = generator_for(instance, TemplateOptions(), 0)
    except NoPlanError:
        return None
    designs = designs_of(generator.by_mix([2]))
    return start_fleet(instance, designs, 0) if designs else None


def test_bug_every_field_is_honoured_refused_or_said() -> None:
    """A new field has to be decided upon here."""
    limits = LimitsFile.model_fields.items()
    fields = {*SearchFile.model_fields, *(str(one.validation_alias or n) for n, one in limits)}
    assert fields == {*HONOURED, *REFUSED, *SAID}
    assert {*HONOURED} & REFUSED == {"schedule"}  # some are known, others are not
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    assert all(f"`{field}`" in page for field in fields)


@pytest.mark.parametrize("field", HONOURED)
def test_bug_fleets_keep_to_a_field_in_search_and_verify(field: str) -> None:
    """Another value gives another fleet, and a file that states the other value is refused."""
    kept, others = (with_fields(field, changes) for changes in HONOURED[field])
    fleet, other = present(fleet_of(kept)), fleet_of(others)
    assert not verify_fleet(fleet).problems
    if other is not None:
        told = [(one.designs, one.step_time_s) for one in (fleet, other)]
        assert told[0] != told[1]
    forged = resealed(fleet, {"instance": others.model_dump(mode="json")})
    assert verify_fleet(forged).problems


@refusals("fleets")
def test_bug_fields_that_fleets_cannot_keep_to_are_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    assert any(field in text for field in REFUSED)
    experts = ", moe: {experts: 4, experts_per_token: 2, ffn_size: 512}" * ("expert" in text)
    path = tmp_path / "x.yaml"
    path.write_text(TEXT.replace("positions: 128", f"positions: 128{experts}") + text)
    for command in (("templates", path), ("replay", path, "--every", "1h")):
        assert run(*command) == (2, "", f"error: {path}:{message}\n")


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("search", {"pipeline_parallel": (2,)}),
        ("search", {"zero": (1,)}),
        ("search", {"idle_nodes": False}),
        ("limits", {"max_step_time_s": 1e-9}),
    ],
)
def test_bug_fleet_files_of_instances_that_fleets_cannot_keep_to(
    section: str, changes: dict[str, Any]
) -> None:
    """Checked files name the field, as does the search where no file is known."""
    fleet = present(fleet_of(with_fields("", {})))
    other = fleet.instance.but(**{section: changes})
    name = next(iter(changes)).removesuffix("_s")
    found = verify_fleet(resealed(fleet, {"instance": other.model_dump(mode="json")}))
    assert any(one.startswith(f"instance.{section}.{name}: found") for one in found.problems)
    with pytest.raises(InstanceError, match=f"^{section}.{name}: "):
        fleet_of(other)


def test_policies_without_fleets_keep_to_limits(tmp_path: Path) -> None:
    """Varuna runs plans of `solve`, which may have a longest step."""
    path = tmp_path / "x.yaml"
    path.write_text(f"{TEXT}search: {{target: any}}\nlimits: {{max_step_time: 10 s}}\n")
    assert run("replay", path, "--every", "1h", "--policy", "restart")[0] == 0
    assert run("replay", path, "--every", "1h", "--policy", "restart", "--policy", "ours")[0] == 2
