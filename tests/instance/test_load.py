"""Promises of formulations.instance.load: from YAML to an instance, or lines that say why not."""

from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance import load
from tests.conftest import ROOT
from tests.instance.resolved import DATA, EXPECTED, MINIMAL, PROFILE, check_lines, instances, parsed
from tests.recorded import as_recorded, digest

SCHEMA = load.instance_json_schema()


@pytest.mark.parametrize("name", EXPECTED)
def test_broken_file_gives_its_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_lines(name, monkeypatch)


def test_every_broken_file_is_listed() -> None:
    files = {path.name for path in DATA.glob("*.yaml")}
    assert {name for name in files if not name.endswith("_times.yaml")} == set(EXPECTED)


def test_sections_are_the_recorded_ones() -> None:
    fields = ("name", "source", "limits", "objective", "preemption", "calibration")
    figures = {name: digest([getattr(i, field) for field in fields]) for name, i in instances()}
    family = load.load_family(ROOT / "instances" / "aws_bert.yaml")
    ends = {"fewest": list(family.fewest), "most": list(family.most)}
    as_recorded("load", figures | ends | {"schema": digest(SCHEMA)})


def test_bug_null_limits_and_overlap_were_refused() -> None:
    """A field that is null says nothing, as one that is left out; bare values stand for lists."""
    limits = "limits: {memory_headroom: null, framework_reserve: null, max_step_time: null}\n"
    overlap = "search: {overlap: {gradient_sync: null, sharding: null, tensor_parallel: null}}\n"
    stated, plain = parsed(MINIMAL + limits + overlap), parsed(MINIMAL)
    assert (stated.limits, stated.search.overlap) == (plain.limits, plain.search.overlap)
    fields = "micro_batch: [3, 4], recompute: full, data_parallel: null, target: any"
    search = parsed(f"{MINIMAL}search: {{{fields}}}\n").search
    assert (search.micro_batch, search.recompute) == ((3, 4), ("full",))


def test_marks_and_merge_keys(tmp_path: Path) -> None:
    """Windows editors put a byte order mark before the text; merge keys are those of YAML 1.1."""
    group = "    - <<: *a\n      name: b\n"
    text = MINIMAL.replace("- {name: a", "- &a {name: a") + group
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8-sig")
    groups = load.load_instance(tmp_path / "x.yaml").cluster.groups
    assert [group.name for group in groups] == ["a", "b"]


def test_every_field_is_described_and_others_are_forbidden() -> None:
    """An editor can say of every field, or of the model it holds, what it means.

    What a value calls max_step_time_s is max_step_time in a file, a text with its unit.
    """
    for title, model in {"InstanceFile": SCHEMA, **SCHEMA["$defs"]}.items():
        assert model["additionalProperties"] is False, title
        for name, field in model["properties"].items():
            inner = SCHEMA["$defs"].get(field.get("$ref", "").removeprefix("#/$defs/"), {})
            assert field.get("description") or inner.get("description"), f"{title}.{name}"
    limits = SCHEMA["$defs"]["LimitsFile"]["properties"]
    assert {"framework_reserve", "max_step_time", "max_price_per_hour"} <= {*limits}
    assert limits["framework_reserve"]["examples"] == ["1 GiB"]


def test_a_profile_alone_is_checked_as_one_in_an_instance() -> None:
    text = PROFILE.replace("profile:\n", "").replace("\n  ", "\n").strip()
    load.check_profile(text, "p.yaml")
    with pytest.raises(InstanceError, match=r"^p.yaml:2:1 source: missing; allowed: Where the"):
        load.check_profile(text.replace("source: invented", ""), "p.yaml")
