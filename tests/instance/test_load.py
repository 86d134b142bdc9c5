"""Promises of formulations.instance.load: from YAML to an instance, or one line that says why not.

tests/data/errors.txt lists every broken file and the line that loading it must print; {gpus},
{links} and {workloads} stand for the names in the catalogues.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from formulations.errors import MOST_LINES, InstanceError
from formulations.instance import Instance
from formulations.instance.catalogue import gpu_catalogue, link_catalogue, workload_catalogue
from formulations.instance.documents import parse_document
from formulations.instance.huggingface import sizes_from_config
from formulations.instance.load import load_instance, parse_instance
from formulations.instance.resolve_workload import from_config
from formulations.units import GIB

ROOT = Path(__file__).resolve().parents[2]
DATA = Path("tests/data")
EXPECTED = dict(
    line.split(" | ", maxsplit=1)
    for line in (ROOT / DATA / "errors.txt").read_text(encoding="utf-8").splitlines()
)

MINIMAL = """
name: minimal
workload: {catalogue: bert-large}
cluster:
  groups:
    - {name: a, gpu: A100-40, gpus_per_node: 4, nodes: 2, inter_node: Ethernet 40G}
"""
PROFILE = """
profile:
  source: invented
  includes_tensor_parallel_traffic: true
  backward_over_forward: 2.5
  times_ms:
    embedding: {A100-40: {1: {1: 0.5}, 2: {1: 0.5}}}
    block: {A100-40: {1: {1: 4, 2: [7.0, 9.0]}, 2: {1: 3}, 4: {1: 2}}}
    head: {A100-40: {1: {1: 1}, 2: {1: 1}}}
"""


def parsed(text: str) -> Instance:
    """Instance of a YAML text whose paths start in tests/data."""
    return parse_instance(text, "x.yaml", ROOT / DATA)


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


def test_quantities_become_base_units() -> None:
    """Written units become B, B/s, s, USD/h and USD."""
    instance = parsed(
        """
name: units
workload: {catalogue: bert-large}
cluster:
  groups:
    - name: a
      gpu: A100-40
      memory: 22.2 GiB
      gpus_per_node: 4
      nodes: 2
      price: 8.5 USD/h
      intra_node: {bandwidth: 128 Gbit/s, latency: 5 us}
      inter_node: {bandwidth: 2 GB/s, latency: 0 s}
limits:
  memory_headroom: 5 %
  framework_reserve: 512 MiB
  max_step_time: 200 ms
  max_cost_per_step: 0.01 USD
  max_price_per_hour: 100 USD/h
"""
    )
    group = instance.cluster.groups[0]
    assert group.gpu.memory_bytes == int(22.2 * 2**30)
    assert group.price_usd_per_hour == 8.5
    # 128 Gbit/s = 16 GB/s
    assert group.intra_node.bandwidth_bytes_per_s == 16e9
    assert group.intra_node.latency_s == pytest.approx(5e-6)
    assert (group.inter_node.bandwidth_bytes_per_s, group.inter_node.latency_s) == (2e9, 0)
    limits = instance.limits
    assert limits.memory_headroom == 0.05
    assert limits.framework_reserve_bytes == 512 * 2**20
    assert limits.max_step_time_s == pytest.approx(0.2)
    assert (limits.max_cost_usd_per_step, limits.max_price_usd_per_hour) == (0.01, 100)


def test_memory_override_leaves_the_catalogue_alone() -> None:
    """A group's own memory changes that group's GPU only."""
    before = gpu_catalogue()["A100-40"].memory_bytes
    parsed(MINIMAL.replace("nodes: 2", "nodes: 2, memory: 1 GiB"))
    assert gpu_catalogue()["A100-40"].memory_bytes == before


def test_inline_gpu() -> None:
    """An unlisted GPU is described in place, with a link of the catalogue."""
    gpu = (
        "{name: K80, peak: {bf16: 4 TFLOP/s}, memory: 11 GiB, memory_bandwidth: 240 GB/s,"
        " link: PCIe 3 x16, efficiency_half_flops: 1e8}"
    )
    found = parsed(MINIMAL.replace("A100-40", gpu)).cluster.groups[0].gpu
    assert (found.name, found.peak_flops) == ("K80", {"bf16": 4e12})
    assert (found.memory_bytes, found.memory_bandwidth_bytes_per_s) == (11 * GIB, 240e9)
    assert found.link == link_catalogue()["PCIe 3 x16"]
    assert found.efficiency_half_flops == 1e8


def test_single_node_needs_no_network() -> None:
    """With one node there is nothing to connect, so inter_node may be left out."""
    text = MINIMAL.replace("nodes: 2, inter_node: Ethernet 40G", "nodes: 1")
    assert parsed(text).cluster.groups[0].nodes == 1


def test_network_efficiency_starts_at_one_node() -> None:
    """Entries are sorted, and below the first one the network is fully efficient."""
    cluster = parsed(MINIMAL + "  network_efficiency: {8: 0.9, 4: 0.95}\n").cluster
    assert cluster.network_efficiency == ((1, 1.0), (4, 0.95), (8, 0.9))


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


def test_huggingface_config_is_found_beside_the_instance(tmp_path: Path) -> None:
    """The path is relative to the instance file; 12 layers of GPT-2 make 14 with both ends."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    workload = "{huggingface: model/config.json, sequence_length: 1024, global_batch: 8}"
    file = tmp_path / "x.yaml"
    file.write_text(MINIMAL.replace("{catalogue: bert-large}", workload), encoding="utf-8")
    found = load_instance(file).workload
    assert (found.name, len(found.layers), found.parameters) == ("model", 14, 124_439_808)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"[" * 100_000, "config.json:1:1: "),
        (b'{"n_layer": ' + b"9" * 5000 + b"}", "config.json:1:1: "),
        (b'{"model_type": "\xff"}', "config.json:1:17: byte 0xff; "),
    ],
)
def test_odd_config_gives_one_line(data: bytes, line: str, tmp_path: Path) -> None:
    """A config.json that no JSON parser takes is named in one line, without a place to refer to."""
    file = tmp_path / "config.json"
    file.write_bytes(data)
    with pytest.raises(InstanceError) as caught:
        from_config(file, sizes_from_config)
    assert str(caught.value).startswith(f"{tmp_path}/{line}")
    assert str(caught.value).isprintable()


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


@pytest.mark.parametrize(
    ("first", "level"),
    [("b0: &x0 [1]", "&x{0} [{1}]"), ("b0: &x0 {k: 1}", "&x{0} {{<<: [{1}]}}")],
    ids=["aliases", "merge keys"],
)
def test_bug_values_written_out_by_the_billion_are_refused(first: str, level: str) -> None:
    """Aliases and merge keys are counted as what they stand for, here 8^12, before they are."""
    lines = [f"b{i + 1}: " + level.format(i + 1, ", ".join([f"*x{i}"] * 8)) for i in range(12)]
    with pytest.raises(InstanceError, match=r"^x.yaml: .* values; allowed: at most 200,000 in"):
        parse_document(first + "\n" + "\n".join(lines), "x.yaml")


def test_shared_values_have_positions_of_their_own_file_line() -> None:
    """A value that stands in two places by an alias is found at both."""
    document = parse_document("a: &x [1, 2]\nb: {<<: {c: *x}}\n", "x.yaml")
    assert document.has(("b", "c", 1))
    assert document.value == {"a": [1, 2], "b": {"c": [1, 2]}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: '" + "x" * 10_001 + "'", r"1:4: a text of 10,001 characters; allowed: at most 10,000"),
        ("a: " + "1:" * 6000 + "1", "1:4: a text of 12,001 characters"),
        ("a: !!bool x", "1:4: not a value of the kind bool; allowed: valid YAML"),
        ("a: !!int ''", "1:4: not a value of the kind int"),
        ("a: !!timestamp x", "1:4: not a value of the kind timestamp"),
        ("#" * (1 << 20) + "\na: 1", " more than 1 MiB"),
    ],
    ids=range(6),
)
def test_bug_hostile_yaml_is_one_line(text: str, line: str) -> None:
    """Explicit kinds that do not fit, and texts that take long to read, are told with a place."""
    with pytest.raises(InstanceError, match="^x.yaml:" + line):
        parse_document(text, "x.yaml")


def _paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        yield from _paths(value[key], (*path, key))  # type: ignore[index]


FULL = yaml.safe_load(
    MINIMAL
    + PROFILE
    + "search: {tensor_parallel: [1, 2], micro_batch: 4}\n"
    + "limits: {memory_headroom: 5 %, max_step_time: 2 s}\n"
    + "objective: {minimize: step_time, steps: 5}\n"
)
JUNK = [None, True, 0, -1, 10**30, 1.5, float("nan"), "", "x", "a\nb", [], [[1]], {}, {1: 2}]


def _errors_of(text: str) -> list[str]:
    """The lines that loading the text gives."""
    try:
        parsed(text)
    except InstanceError as error:
        return str(error).split("\n")
    return []


@pytest.mark.parametrize("path", list(_paths(FULL)), ids=lambda path: ".".join(map(str, path)))
def test_junk_in_any_field_gives_lines(path: tuple[Any, ...]) -> None:
    """Whatever stands in a field, loading gives an instance or lines with a position each."""
    for junk in JUNK:
        value = copy.deepcopy(FULL)
        owner = value
        for key in path[:-1]:
            owner = owner[key]
        owner[path[-1]] = junk
        for line in _errors_of(yaml.safe_dump(value)):
            assert line.isprintable()
            assert line.startswith("x.yaml:")


def test_bug_all_errors_of_a_file_are_told_in_its_order() -> None:
    """Wrong words of one section, then names and values that do not fit another part."""
    words = MINIMAL + "search: {recompute_per: never, zero: [9], schedul: 1f1b, micro_batch: 0}\n"
    assert [line.partition(" ")[2].partition(":")[0] for line in _errors_of(words)] == [
        "search.recompute_per",
        "search.zero[0]",
        "search.schedul",
        "search.micro_batch",
    ]
    names = """
name: several
workload: {catalogue: bert}
cluster:
  groups:
    - {name: a, gpu: A100-41, gpus_per_node: 4, nodes: 2, inter_node: Ethernet 41G}
    - {name: b, gpu: A100-40, gpus_per_node: 4, nodes: 2, inter_node: Ethernet 42G}
search: {virtual_pipeline: 2, overlap: none}
objective: {minimize: training_cost}
"""
    rows = [int(line.split(":")[1]) for line in _errors_of(names)]
    assert rows == [3, 6, 6, 7, 8, 8, 9]


def test_bug_what_a_target_cannot_run_hid_all_other_errors() -> None:
    """Every wrong word of `search`, and then what rests on model, profile and machines."""
    text = """
name: several
workload: {catalogue: bert-large, precision: fp8, flash_attention: true}
cluster:
  groups:
    - {name: a, gpu: V100-16, gpus_per_node: 4, nodes: 2, inter_node: 40 Gbit/s}
search:
  schedule: [gpipe, zb-h1]
  micro_batches: uneven
  zero: [1, 3]
  tensor_parallel: 3
  micro_batch: 7
  context_parallel: 16
"""
    rows = [int(line.split(":")[1]) for line in _errors_of(text)]
    assert rows == [3, 3, 8, 8, 9, 10, 11, 12, 13]


def test_errors_beyond_twenty_are_counted() -> None:
    """Every entry of a list of 30 is wrong."""
    lines = _errors_of(MINIMAL + f"search: {{micro_batch: {[0] * 30}}}\n")
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "and 10 more"


def test_a_link_may_be_a_bandwidth_alone() -> None:
    """Its latency is that of NCCL's rings, and its source says so."""
    instance = parsed(
        """
name: links
workload: {catalogue: bert-large}
cluster:
  groups:
    - {name: a, gpu: A10, gpus_per_node: 4, nodes: 2, intra_node: 128 Gbit/s, inter_node: 2 GB/s}
"""
    )
    group = instance.cluster.groups[0]
    assert (group.intra_node.bandwidth_bytes_per_s, group.intra_node.latency_s) == (16e9, 5.7e-6)
    assert (group.inter_node.bandwidth_bytes_per_s, group.inter_node.latency_s) == (2e9, 14e-6)
    assert group.inter_node.source == "the instance; latency of 14 us: NCCL 2.19"


def test_bug_repeated_group_name_hid_other_mistakes() -> None:
    """An unknown GPU and an unknown link of the same groups are told with it."""
    group = "{name: a, gpu: H10, gpus_per_node: 8, nodes: 1, inter_node: 400 Gbit/s}"
    other = "{name: a, gpu: H100, gpus_per_node: 8, nodes: 1, inter_node: nope}"
    text = f"""
name: x
workload: {{catalogue: gpt2}}
cluster:
  groups: [{group}, {other}]
"""
    with pytest.raises(InstanceError) as caught:
        parse_instance(text, "x.yaml", Path())
    fields = [error.where.rpartition(".")[2] for error in caught.value.errors]
    assert sorted(fields) == ["gpu", "inter_node", "name"]


@pytest.mark.parametrize(
    "factors", ["{}", "{block: {}}", "{block: {A100-40: {}}}", "{block: {A100-40: {1: {}}}}"]
)
def test_bug_empty_tables_of_a_calibration_were_a_traceback(factors: str) -> None:
    """At any depth, also beside tables that are not empty."""
    with pytest.raises(InstanceError, match="an empty mapping; allowed: at least 1 entry"):
        parsed(f"{MINIMAL}calibration: {{source: x, factors: {factors}}}")
