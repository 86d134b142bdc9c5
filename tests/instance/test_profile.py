"""Promises of formulations.instance.profile, worked out by hand."""

import pytest

from formulations.instance import Profile, ProfileEntry
from formulations.instance.profile import covered_degrees, leaves
from tests.instance_texts import MINIMAL, PROFILE, parsed


def curve(**times: float) -> Profile:
    """Times of 1 and 2 seconds at micro-batches 2 and 6."""
    entries = [
        ProfileEntry(
            kind="block", gpu="X", tp=1, micro_batch=b, forward_s=s, backward_s=2 * s, **times
        )
        for b, s in ((6, 2.0), (2, 1.0))
    ]
    return Profile(source="t", includes_tensor_parallel_traffic=True, entries=tuple(entries))


@pytest.mark.parametrize(
    ("b", "forward_s", "origin"),
    [
        (2, 1.0, "measured"),
        (6, 2.0, "measured"),
        (3, 1.25, "interpolated"),  # a quarter of the way
        (1, 0.5, "scaled"),
        (12, 4.0, "scaled"),
    ],
)
def test_between_sizes_linear_beyond_them_in_proportion(
    b: int, forward_s: float, origin: str
) -> None:
    """Backward passes, and what of them is for weight gradients, likewise."""
    assert curve().time_s("block", "X", 1, b) == ((forward_s, 2 * forward_s, None), origin)
    (_, _, weight_s), _ = curve(weight_s=0.5).time_s("block", "X", 1, b)
    assert weight_s == {1: 0.25, 12: 1.0}.get(b, 0.5)


def test_curves_that_are_missing() -> None:
    """Refused, unless the analytic model completes the profile."""
    profile = curve()
    with pytest.raises(KeyError, match="head on X at tp 1"):
        profile.time_s("head", "X", 1, 1)
    assert not profile.has_time("block", "X", 2)
    assert profile.but(completed=True).has_time("block", "X", 2)
    assert (profile.measures("X"), profile.measures("Y")) == (True, False)


def test_leaves_of_a_table_of_tables() -> None:
    """Keys and value, in order."""
    assert [*leaves({"a": {1: 2, 3: 4}, "b": 5})] == [(("a", 1), 2), (("a", 3), 4), (("b",), 5)]


def test_default_degrees_divide_the_heads() -> None:
    """GPT-2 XL has 25 heads, so no two GPUs can share a layer."""
    assert parsed(MINIMAL.replace("bert-large", "gpt2-xl")).search.tensor_parallel == (1,)


def test_default_degrees_are_in_the_profile() -> None:
    """Degree 4 has times of the blocks alone and so is left out."""
    assert parsed(MINIMAL + PROFILE).search.tensor_parallel == (1, 2)


def test_profile_in_seconds() -> None:
    """A bare time is the forward pass and gives backward by the ratio; a pair gives both."""
    profile = parsed(MINIMAL + PROFILE).profile
    assert profile is not None
    # 4 ms forward, 2.5 * 4 ms backward; measured pair at micro-batch 2.
    times = [(e.forward_s, e.backward_s) for e in profile.samples("block", "A100-40", 1)]
    assert times == [pytest.approx((0.004, 0.010)), pytest.approx((0.007, 0.009))]


def test_profile_of_a_small_node_needs_no_large_degree() -> None:
    """Times at degree 4 are not asked of a GPU whose nodes hold 2."""
    small = "    - {name: b, gpu: A10, gpus_per_node: 2, nodes: 1, inter_node: Ethernet 40G}\n"
    curve = "{1: {1: 1.0}, 2: {1: 1.0}}"
    times = f"{{A100-40: {{1: {{1: 1.0}}, 2: {{1: 1.0}}, 4: {{1: 1.0}}}}, A10: {curve}}}"
    profile = (
        "profile: {source: x, includes_tensor_parallel_traffic: true, backward_over_forward: 2,"
        f" times_ms: {{embedding: {times}, block: {times}, head: {times}}}}}\n"
    )
    text = MINIMAL + small + profile + "search: {tensor_parallel: [1, 2, 4]}\n"
    assert parsed(text).search.tensor_parallel == (1, 2, 4)


def test_degrees_that_fill_no_node_need_no_times() -> None:
    """Degree 3 fills no node of 4, so nothing is missing there."""
    instance = parsed(MINIMAL + PROFILE)
    profile, kinds = instance.profile, ["embedding", "block", "head"]
    assert profile is not None
    assert covered_degrees(profile, kinds, instance.cluster, [1, 2, 3, 4]) == [1, 2, 3]
