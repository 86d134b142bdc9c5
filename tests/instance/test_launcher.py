"""What all launch targets have in common: rules, and what a workload asks for."""

from formulations.instance.launcher import Demands, Launcher, Rule, chain_of
from formulations.instance.search import SearchFile
from tests.export_cases import UNTIED, instance_of

PLAIN = instance_of(UNTIED).workload


def test_rules_keep_what_they_allow() -> None:
    """Of a list what can run, else the first that can; some hold only where stages are unlike."""
    rules = {"recompute": Rule(("none",), "why"), "zero": Rule((1, 2), "why")}
    launcher = Launcher("x", rules, free_if_alike=("recompute",))
    assert [rules["zero"].kept(value) for value in ((2, 3, 1), (3,), 2, 3)] == [(2, 1), (1,), 2, 1]
    assert (list(launcher.rules("plan")), list(launcher.rules("stage"))) == (["zero"], [*rules])
    assert launcher.kept(SearchFile(zero=(0, 1))) == {"recompute": ("none",), "zero": (1,)}
    assert [launcher.allows("zero", zero) for zero in (0, 1)] == [False, True]
    assert launcher.allows("tensor_parallel", 8)  # free, as it has no rule


def test_states_are_split_among_gpus_that_have_the_same() -> None:
    """Those that are distributed are split with ZeRO alone, whatever GPUs have."""
    launcher = Launcher("x", zero_stages=((0, 1), (0, 2)), distributed=("bf16",))
    halves = PLAIN.but(optimizer_bytes=8)
    for zero, pp, copied, fields in (
        (0, 1, True, []),
        (1, 1, True, []),
        (1, 2, True, ["zero"]),
        (1, 2, False, []),
    ):
        demands = Demands(tp=1, pp=pp, zero=zero, copied=copied)
        assert [refusal.field for refusal in launcher.refused(PLAIN, demands)] == fields
        assert demands.sharded == (zero > 0 or not copied)
        distributed = list(launcher.refused(halves, demands))
        assert bool(distributed) == (bool(fields) or not zero)


def test_what_is_trained() -> None:
    """Fields of a workload that a target has rules for, with what it can train."""
    t5 = instance_of("catalogue: t5-3b, optimizer_state: 8bit").workload
    assert chain_of(t5) == "an encoder and a decoder"
    assert chain_of(PLAIN.but(layer_runs=PLAIN.layer_runs[1:])).startswith("a chain that is not")
    stack = Rule(("one stack of blocks",), "why")
    launcher = Launcher("x", workload={"layers": stack, "optimizer_state": Rule(("fp32",), "why")})
    refusals = {refusal.field: refusal.instead for refusal in launcher.untrained(t5)}
    assert refusals == {"optimizer_state": ("fp32",), "layers": ("one stack of blocks",)}
    assert list(launcher.untrained(PLAIN)) == []
