"""Promises of formulations.instance.load: from YAML to an instance, or one line that says why not.

tests/data/errors.txt lists every broken file and the line that loading it must print; {gpus},
{links} and {workloads} stand for the names in the catalogues.
"""

from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance.catalogue import gpu_catalogue, link_catalogue, workload_catalogue
from formulations.instance.load import check_profile, instance_json_schema, load_instance
from formulations.units import GIB
from tests.conftest import ROOT
from tests.instance_texts import MINIMAL, PROFILE, parsed

DATA = Path("tests/data")
EXPECTED = dict(
    line.split(" | ", maxsplit=1)
    for line in (ROOT / DATA / "errors.txt").read_text(encoding="utf-8").splitlines()
)
SCHEMA = instance_json_schema()


@pytest.mark.parametrize("name", EXPECTED)
def test_broken_file_gives_its_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a broken file is exactly the expected line, and the exit code is 2."""
    monkeypatch.chdir(ROOT)
    lists = {
        "gpus": gpu_catalogue(),
        "links": link_catalogue(),
        "workloads": workload_catalogue(),
    }
    expected = EXPECTED[name]
    for key, names in lists.items():
        expected = expected.replace(f"{{{key}}}", ", ".join(names))
    with pytest.raises(InstanceError) as caught:
        load_instance(DATA / name)
    assert str(caught.value) == expected
    assert caught.value.exit_code == 2


def test_every_broken_file_is_listed() -> None:
    """No broken file is without its expected line; *_times.yaml are parts of others."""
    files = {path.name for path in (ROOT / DATA).glob("*.yaml")}
    assert {name for name in files if not name.endswith("_times.yaml")} == set(EXPECTED)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("tests/data/nowhere.yaml", "no such file or directory"), ("tests/data", "is a directory")],
)
def test_unreadable_instance(path: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is no readable file is named with the reason."""
    monkeypatch.chdir(ROOT)
    with pytest.raises(InstanceError) as caught:
        load_instance(Path(path))
    allowed = "the path of an instance file, such as instances/hetero_small.yaml"
    assert str(caught.value) == f"{path}: {reason}; allowed: {allowed}"


def test_minimal_instance_takes_defaults() -> None:
    """What is not written has its default: the catalogue's workload and link, the search space."""
    instance = parsed(MINIMAL)
    assert (instance.workload.sequence_length, instance.workload.global_batch) == (512, 256)
    assert (instance.workload.precision, instance.workload.gradient_bytes) == ("bf16", 4)
    group = instance.cluster.groups[0]
    assert group.intra_node == group.gpu.link
    assert group.price_usd_per_hour == 0
    assert instance.cluster.network_efficiency == ((1, 1.0),)
    assert instance.search.tensor_parallel == (1, 2, 4)
    assert instance.search.recompute == ("none", "full")
    assert instance.search.target == "megatron"
    assert instance.search.zero == (0, 1)
    assert instance.search.recompute_per == "plan"
    assert instance.search.micro_batch is None
    assert instance.limits.framework_reserve_bytes == GIB
    assert instance.objective.minimize == "step_time"


def test_bug_null_limits_and_overlap_were_refused() -> None:
    """A field that is null says nothing, as one that is left out."""
    limits = "limits: {memory_headroom: null, framework_reserve: null, max_step_time: null}\n"
    overlap = "search: {overlap: {gradient_sync: null, sharding: null, tensor_parallel: null}}\n"
    stated, plain = parsed(MINIMAL + limits + overlap), parsed(MINIMAL)
    assert stated.limits == plain.limits
    assert stated.search.overlap.gradient_sync == stated.search.overlap.sharding == 0


def test_bare_values_stand_for_lists() -> None:
    """`micro_batch: 4` means `[4]`; null means that anything goes."""
    search = parsed(
        MINIMAL
        + "search: {micro_batch: 4, recompute: full, zero: 1,"
        + " data_parallel: null, schedule: gpipe, target: any}\n"
    ).search
    assert (search.micro_batch, search.recompute) == ((4,), ("full",))
    assert (search.zero, search.schedule) == ((1,), ("gpipe",))
    assert search.data_parallel is None


def test_some_micro_batches_need_not_divide() -> None:
    """A candidate that does not divide the batch of 256 is allowed beside one that does."""
    assert parsed(MINIMAL + "search: {micro_batch: [3, 4]}\n").search.micro_batch == (3, 4)


def test_byte_order_mark(tmp_path: Path) -> None:
    """Windows editors may put a byte order mark before the text."""
    file = tmp_path / "x.yaml"
    file.write_text(MINIMAL, encoding="utf-8-sig")
    assert load_instance(file).name == "minimal"


def test_merge_keys() -> None:
    """Aliases and merge keys work as in YAML 1.1, with their positions."""
    text = """
name: merged
workload: {catalogue: bert-large}
cluster:
  groups:
    - &a {name: a, gpu: A100-40, gpus_per_node: 4, nodes: 2, inter_node: Ethernet 40G}
    - <<: *a
      name: b
"""
    assert [group.name for group in parsed(text).cluster.groups] == ["a", "b"]


def test_every_field_is_described_and_others_are_forbidden() -> None:
    """An editor can say of every field, or of the model it holds, what it means."""
    for title, model in {"InstanceFile": SCHEMA, **SCHEMA["$defs"]}.items():
        assert model["additionalProperties"] is False, title
        for name, field in model["properties"].items():
            inner = SCHEMA["$defs"].get(field.get("$ref", "").removeprefix("#/$defs/"), {})
            assert field.get("description") or inner.get("description"), f"{title}.{name}"


def test_required_fields() -> None:
    """The least that a file must have."""
    assert SCHEMA["required"] == ["name", "workload", "cluster"]
    assert SCHEMA["$defs"]["NodeGroupFile"]["required"] == ["name", "gpu", "gpus_per_node", "nodes"]


def test_names_of_files_have_no_units() -> None:
    """What a value calls max_step_time_s is max_step_time in a file, as a text with its unit."""
    limits = SCHEMA["$defs"]["LimitsFile"]["properties"]
    assert {"framework_reserve", "max_step_time", "max_price_per_hour"} <= {*limits}
    assert "default" not in limits["framework_reserve"]
    assert limits["framework_reserve"]["examples"] == ["1 GiB"]


def test_a_profile_alone_is_checked_as_one_in_an_instance() -> None:
    """What `profile` writes is read back before it is written."""
    text = PROFILE.replace("profile:\n", "").replace("\n  ", "\n").strip()
    check_profile(text, "p.yaml")
    with pytest.raises(InstanceError, match=r"^p.yaml:2:1 source: missing; allowed: Where the"):
        check_profile(text.replace("source: invented", ""), "p.yaml")
