"""Rules of launch targets."""

from itertools import product
from typing import get_args

import pytest

from formulations.instance.resolve_workload import workload_catalogue
from formulations.instance.search import SearchFile
from formulations.instance.targets import (
    LAUNCHERS,
    TARGETS,
    Demands,
    Target,
    chain_of,
    launchers,
    mixed_gradients,
    traits,
)
from formulations.instance.workload import OptimizerState
from tests.export_cases import UNTIED, WHOLE_EXPERTS, instance_of
from tests.recorded import Cases, digest, recorded

GPT2 = instance_of().workload  #: whose embedding and head are one matrix
PLAIN = instance_of(UNTIED).workload
EXPERTS = WHOLE_EXPERTS.instance.workload
MODELS = {
    "plain": PLAIN,
    "experts": EXPERTS,
    "experts in fp16": EXPERTS.but(precision="fp16"),
    "experts with biases": EXPERTS.but(expert_biases=True),
}


@recorded("targets")
def test_refusals_are_the_recorded_ones() -> Cases:
    """Of every launcher: rules, what it keeps of defaults, all that it refuses of a grid."""
    models = MODELS | {"tied": GPT2, "halves": PLAIN.but(optimizer_bytes=8)}
    models["t5"] = instance_of("catalogue: t5-3b, optimizer_state: 8bit").workload
    models["fused"] = PLAIN.but(fused_cross_entropy=True)
    models["odd"] = PLAIN.but(layer_runs=PLAIN.layer_runs[1:], mtp_layers=1)
    flags, degrees = (True, False), (1, 2)
    grid = product(*[degrees] * 4, (1, "tp"), range(4), flags, flags)
    demands = [Demands(*fields) for fields in grid]  # type: ignore[arg-type]
    for name, launcher in LAUNCHERS.items():
        rules = [[*launcher.rules(per)] for per in ("plan", "stage")]
        states = [launcher.rules("plan", state) for state in get_args(OptimizerState)]
        yield name, [*rules, digest([*states, launcher.kept(SearchFile())])]
        for model, workload in models.items():
            refused = [list(launcher.refused(workload, each)) for each in demands]
            untrained = list(launcher.untrained(workload))
            stages = launcher.most_stages(workload), chain_of(workload), mixed_gradients(workload)
            yield f"{name}, {model}", [digest(refused), digest([untrained, stages])]
    for name, entry in workload_catalogue().items():
        unbuilt = LAUNCHERS["megatron"].unbuilt(entry.sizes)
        yield f"{name} in Megatron-LM", [refusal.field for refusal in unbuilt]
    yield "sharded", sum(each.sharded for each in demands)
    yield "who", [launchers("micro_batches", "uneven"), launchers("recompute_per", "stage")]


def test_positions_are_told_in_words() -> None:
    learned = workload_catalogue()["gpt2"].sizes
    bare = learned.but(learned_positions=None)
    rotary = bare.but(rotary_positions=True)
    words = [traits(sizes)["positions"] for sizes in (learned, bare, rotary)]
    assert words == ["learned", "none", "rotary"]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_rules_are_for_fields_and_keep_a_default(name: Target) -> None:
    """A rule names a field of `search`, and leaves something of its default; `any` has none."""
    for field, rule in LAUNCHERS[name].search.items():
        value = getattr(SearchFile(), field)
        values = value if isinstance(value, tuple) else [value]
        assert value is None or isinstance(value, str) or any(v in rule.allowed for v in values)
    assert TARGETS["any"].search == {} == TARGETS["any"].workload
