"""Defaults of `search`, which depend on GPUs, degrees, profile and launch target."""

from itertools import product

from formulations.instance import Instance
from formulations.instance.targets import TARGETS
from tests.conftest import ROOT
from tests.instance.resolved import PROFILE, broken, drawn, parsed, section
from tests.recorded import as_recorded, digest

test_lines = broken(
    *("cp_", "ep_", "etp_", "tp_", "target", "batch_not", "degrees", "zero", "per_stage"),
    *("interleaved", "chunk", "recompute", "sequence_parallel", "overlap", "profile_with"),
)


def test_spaces_are_the_recorded_ones() -> None:
    figures = {name: digest(made) for name, made in drawn().items() if isinstance(made, str)}
    for target, more in product(TARGETS, ("", ", recompute_per: plan", ", recompute: full")):
        search = small("V100-16", "precision: fp32", f", target: {target}{more}").search
        ways = [search.recompute_per, *search.recompute]
        figures[f"{target}{more}"] = [*ways, *search.zero, digest(search)]  # type: ignore[assignment]
    text = (ROOT / "tests/data/cp_not_heads.yaml").read_text().replace("all_to_all", "ring")
    assert parsed(text).search.context_parallel == (4,)  # heads limit exchanges alone
    as_recorded("resolve_search", section("search") | figures)


def small(
    gpu: str = "A100-40", workload: str = "precision: fp16", search: str = "", more: str = ""
) -> Instance:
    """BERT-large on four GPUs."""
    return parsed(f"""
name: small
workload: {{catalogue: bert-large, {workload}}}
cluster: {{groups: [{{name: a, gpu: {gpu}, gpus_per_node: 4, nodes: 1}}]}}
search: {{micro_batch: 1{search}}}
{more}""")


def test_splits_of_sequences_are_the_recorded_ones() -> None:
    """Where a degree above 1 divides them, and as the profile says."""
    degrees = ", tensor_parallel: [1, 2]"
    searches = ("512", degrees), ("511", degrees), ("512", ", tensor_parallel: 1")
    made = [small(workload=f"sequence_length: {s}", search=more) for s, more in searches]
    for flag in ("false", "true"):
        ways = f"flash_attention: {flag}\n  sequence_parallel: {flag}\n  times_ms"
        made.append(small(search=", tensor_parallel: 2", more=PROFILE.replace("times_ms", ways)))
    stated = [
        [one.search.sequence_parallel, one.search.split_tokens, one.workload.flash_attention]
        for one in made
    ]
    as_recorded("resolve_search", {"splits": stated})
