"""The plan space: what search and verifier list, what the verifier accepts, and the documentation.

Instances are random, with every choice of `search`, see `tests.random_spaces`.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.instance.targets import Target
from formulations.plan import Configuration, Degrees
from formulations.space import PlanSpace, configs
from formulations.space.configurations import longest_pipeline
from solver.document import PlanDocument
from solver.files import sealed
from solver.result import Status
from solver.search.driver import solve
from solver.verify import verify_document
from solver.verify.feasibility import check_config
from solver.verify.findings import Findings
from tests.best_plans import check_space, check_verified
from tests.conftest import present, text_of
from tests.oracles.plan_space import Config, Slot, configurations, covers, stage_configurations
from tests.random_spaces import perturbed, random_space
from tests.recorded import Cases, digest, recorded
from tests.seeds import each_of, few_and_many

TARGETS: tuple[Target, ...] = get_args(Target)

PARTS = text_of("spaces/parts.yaml")


def with_parts(**search: int) -> Instance:
    """Two GPUs of a node that can be two replicas, or two parts of one."""
    lines = (f"  {field}: {value}\n" for field, value in search.items())
    return parse_instance(PARTS + "".join(lines), "parts", Path())


def accepts(space: PlanSpace, config: Configuration) -> bool:
    findings = Findings()
    taken = check_config(space, config, findings)
    assert taken == (not findings.problems)
    return taken


def test_bug_a_micro_batch_of_one_sequence_in_two_parts_was_accepted() -> None:
    """With two sequences it is a plan, with one or three a part would lack some."""
    instance = with_parts(micro_batch=2, data_parallel=1).but(search={"micro_batch": (1, 2, 3, 4)})
    (halves, *_) = (s for s in configs(instance) if s.micro_batch == 2)
    assert halves.degrees == (Degrees(tp=1, parts=2),)
    space = PlanSpace(instance)
    assert accepts(space, halves)
    assert not any(accepts(space, halves.but(micro_batch=b)) for b in (1, 3))
    with pytest.raises(ValueError, match="1 sequences for 2 equal parts"):
        build_tables(instance, halves.but(micro_batch=1))


def test_bug_an_impossible_plan_was_verified_as_the_optimum(reference: Path) -> None:
    """Its log is that of the plan space, and its bound is its own time."""
    text = (reference / "defects" / "parts1_forged.json").read_text(encoding="utf-8")
    for word in ("shape", "shapes", "closed_shapes"):  # of the schema before
        text = text.replace(f'"{word}":', f'"{word.replace("shape", "config")}":')
    fields = json.loads(text) | {"schema_version": PlanDocument.version()}
    del fields["other_targets"]
    fields |= {"expected_error": None, "memory_margin": None}
    document = sealed(PlanDocument.model_validate_json(json.dumps(fields)))
    (line,) = verify_document(document).problems
    assert line.startswith("config.dp, pp: found (1, 8), expected none")


def test_bug_parts_were_left_out_where_no_replicas_can_stand_for_them() -> None:
    """One replica, or micro-batches of 4: its halves are the two replicas of 2 sequences each."""
    free = solve(with_parts())
    for search in ({"data_parallel": 1, "micro_batch": 4}, {"micro_batch": 4}):
        result = solve(with_parts(**search))
        assert present(result.plan).config.degrees == (Degrees(tp=1, parts=2),)
        assert (result.status, result.step_time_ns) == (Status.OPTIMAL, free.step_time_ns)
        check_verified(result)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seeds", few_and_many(range(60), 30))
def test_the_verifier_accepts_what_is_listed(seeds: Sequence[int], target: Target) -> None:
    """Each once, and no other: of listed ones with some fields changed those that are listed."""
    taken = refused = 0
    for seed in seeds:
        instance, rng = random_space(seed, target), random.Random(seed)
        check_space(instance)
        space, listed = PlanSpace(instance), list(configs(instance))
        inside = set(listed)
        for _ in range(100):
            config = perturbed(rng, rng.choice(listed), listed)
            assert accepts(space, config) == (config in inside), (seed, config)
            taken, refused = taken + (config in inside), refused + (config not in inside)
    assert min(taken, refused) > len(seeds)


@pytest.mark.parametrize("target", TARGETS)
@recorded("configurations")
def test_plan_spaces_are_the_recorded_ones(target: Target) -> Cases:
    for seed in range(0, 24, 8):
        instance = random_space(seed, target)
        listed = list(configs(instance))
        words = digest([str(config.model_dump()) for config in listed])
        yield f"{target} {seed}", [longest_pipeline(instance), len(listed), words]


def in_oracle_words(config: Configuration) -> Config:
    slots = tuple(Slot(own.tp, own.parts, own.cp) for own in config.degrees_used)
    head = config.nodes_used, slots, config.dp, config.pp, config.micro_batch
    experts, group = (config.ep, config.etp or "tp"), config.microbatch_group or config.pp
    schedule = config.schedule, config.vpp, group if config.vpp > 1 else 0
    shards = config.zero, config.optimizer_instances
    return Config(*head, *experts, schedule, *shards, config.sync_each_batch, config.recompute)


def test_bug_shard_groups_of_stages_with_degrees_of_their_own_were_a_traceback() -> None:
    """These have one, beside other configurations of a node of eight GPUs with one and two."""
    instance = with_parts()
    wide = instance.cluster.groups[0].but(gpus_per_node=8)
    degrees = {"degrees": "per_stage", "tensor_parallel": (1, 2), "pipeline_parallel": (1, 2)}
    search = {**degrees, "zero": (1,), "optimizer_instances": (1, 2)}
    instance = instance.but(cluster={"groups": (wide,)}, search=search)
    found = {(config.per_stage, config.optimizer_instances) for config in configs(instance)}
    assert found == {(True, 1), (False, 1), (False, 2)}


@pytest.mark.parametrize("target", ["megatron", "any"])
@each_of(range(120), 30)
def test_all_that_the_documentation_describes_is_listed(seed: int, target: Target) -> None:
    """Itself, or one with all of its plans; and nothing else is."""
    instance = random_space(seed, target)
    if target == "megatron" and instance.workload.experts:
        return  # it has rules of its own
    space = configurations(instance)
    listed = {in_oracle_words(config) for config in configs(instance) if not config.per_stage}
    assert listed <= space, seed
    assert not [c for c in space if not covers(instance, listed, space, c)], seed
    stages = {
        (config.nodes_used, config.dp, config.pp, config.micro_batch)
        for config in configs(instance)
        if config.per_stage
    }
    assert stage_configurations(instance) <= stages, seed
    assert not stages or instance.search.degrees == "per_stage", seed
