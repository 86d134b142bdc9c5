"""The command `pareto`, of clusters and of subsets: output, files, exit codes and errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import output, refused, run
from tests.conftest import ROOT

SMALL = ROOT / "instances" / "hetero_small.yaml"
QUICK = ("--workers", 1, "--gap", 0.01)
MILLION = ("--sequences", 10**6)
#: GPT-2 on up to one A100 and two A10 of a node each, which are slower than cheap.
RENTED = """
name: rented
workload: {catalogue: gpt2, global_batch: 8}
cluster:
  groups:
    - {name: a100, gpu: A100-40, gpus_per_node: 1, nodes: {max: 1}, inter_node: 100 Gbit/s,
       price: 4 USD/h}
    - {name: a10, gpu: A10, gpus_per_node: 1, nodes: {min: 0, max: 2}, inter_node: 100 Gbit/s,
       price: 1 USD/h}
search: {tensor_parallel: 1, micro_batch: [2, 4], recompute: none, zero: 1, target: any}
"""


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """The clusters of RENTED."""
    path = tmp_path / "family.yaml"
    path.write_text(RENTED, encoding="utf-8")
    return path


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """All of these nodes, as one cluster."""
    path = tmp_path / "nodes.yaml"
    text = RENTED.replace("{max: 1}", "1").replace("{min: 0, max: 2}", "2")
    path.write_text(text, encoding="utf-8")
    return path


def points_of(*arguments: object) -> list[dict[str, Any]]:
    """The points of a front, fastest first."""
    fields = json.loads(run("pareto", *arguments, *QUICK, "--json")[1])
    points: list[dict[str, Any]] = fields["points"]
    return points


def test_pareto_writes_a_front_that_verify_accepts(
    family: Path, nodes: Path, tmp_path: Path
) -> None:
    """A table, a picture and a file; `show`, `report` and `verify` take the file."""
    out, svg, page = (tmp_path / name for name in ("front.json", "front.svg", "page.html"))
    text = output("pareto", family, *QUICK, "--out", out, "--svg", svg)
    assert "of a million sequences" in text
    assert "every cluster is closed" in text
    assert svg.read_text(encoding="utf-8").startswith("<svg")
    assert run("verify", out, "--instance", family)[0] == 0
    assert run("verify", out, "--instance", nodes)[0] == 1
    assert run("show", out)[1] == text
    assert run("report", out, "--out", page)[0] == 0
    assert "Other clusters" in page.read_text(encoding="utf-8")


def test_budget_and_deadline_give_one_point(family: Path) -> None:
    """The fastest cluster that a budget pays for, the cheapest that is in time."""
    whole = points_of(family, *MILLION)
    cheapest = whole[-1]["nodes"]
    budget = 1.001 * whole[-1]["terms"][0]["training_cost_usd"]
    assert [p["nodes"] for p in points_of(family, *MILLION, "--budget", budget)] == [cheapest]
    assert [p["nodes"] for p in points_of(family, *MILLION, "--deadline", "100d")] == [cheapest]


@pytest.mark.parametrize(
    ("limits", "least"),
    [
        (("--budget", 1e-6), "the least cost is"),
        (("--budget", 1e-6, "--deadline", "1s"), "the least time is"),
        (("--budget", 1e-6, "--deadline", "100d"), "the least cost is"),
    ],
)
def test_a_limit_too_tight_names_the_least_there_is(
    limits: tuple[object, ...], least: str, family: Path
) -> None:
    """The least cost by the deadline, else the least time, and who reaches it, proved."""
    code, out, err = run("pareto", family, *QUICK, *MILLION, *limits)
    assert code == 3
    assert "without a plan within the limits" in out
    [line] = [line for line in err.splitlines() if "no cluster within" in line]
    assert least in line
    assert "by 1 a1" in line
    assert line.endswith("proved within 1.0 %")


def test_subsets_name_what_every_group_brings(nodes: Path, tmp_path: Path) -> None:
    """Without the A100 more is lost than without an A10; the page draws nodes, not money."""
    path, page = tmp_path / "subsets.json", tmp_path / "page.html"
    out = output("pareto", "--subsets", nodes, *QUICK, "--out", path)
    assert run("verify", path, "--instance", nodes)[0] == 0
    assert "without a100" in out
    assert "without a10 " in out
    assert run("report", path, "--out", page)[0] == 0
    text = page.read_text(encoding="utf-8")
    # test_bug_page_of_subsets_drew_a_front_of_money: clusters are compared by time and nodes
    assert "The line is the fewest nodes at a throughput" in text
    assert ">nodes</text>" in text
    assert "without a100" in text


def test_subsets_name_the_sizes_that_bring_nothing() -> None:
    """Of up to eight nodes of either kind; and a gap says what idle nodes may bring at most."""
    out = output("pareto", "--subsets", SMALL.with_name("aws_bert.yaml"), *QUICK)
    assert (
        "nodes         3, 5-7, 9-16: no plan is faster than the best of fewer nodes, proved" in out
    )
    assert "idle          8 of a10: no plan with one more is faster by more than 1.0 %" in out


def test_time_limit_gives_the_front_so_far(family: Path) -> None:
    """No time: exit code 4, and all clusters open."""
    code, out, _ = run("pareto", family, "--time-limit", 1e-6, "--workers", 1)
    assert code == 4
    assert "the time limit was reached" in out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((SMALL,), "one cluster; allowed: a range of nodes"),
        (("FAMILY", "--budget", 5), "name its --sequences"),
        (("FAMILY", "--deadline", "1d"), "name its --sequences"),
        (("FAMILY", "--sequences", 9, "--deadline", "soon"), "--deadline 'soon'"),
        (("FAMILY", "--budget", -1), "above 0"),
        (("FAMILY", "--sequences", 1, "--budget", 1e308), "at most 1,000,000,000,000,000 USD"),
        (("FAMILY", "--out", "/nowhere/front.json"), "cannot write"),
    ],
)
def test_wrong_options_are_one_line(
    arguments: tuple[object, ...], error: str, family: Path
) -> None:
    """Exit code 2, before anything is searched."""
    given = (family if argument == "FAMILY" else argument for argument in arguments)
    code, out, err = run("pareto", *given)
    assert (code, out) == (2, "")
    assert error in " ".join(err.split())


def test_clusters_without_prices_are_refused(family: Path) -> None:
    """There is nothing to compare them by."""
    text = RENTED.replace(",\n       price: 4 USD/h", "").replace(",\n       price: 1 USD/h", "")
    family.write_text(text, encoding="utf-8")
    assert "cluster.groups: no price; allowed: the price of one node" in refused("pareto", family)


def test_other_commands_name_pareto_for_a_range(family: Path) -> None:
    """A family is no instance; the line says who takes it."""
    for command in ("solve", "templates"):
        err = refused(command, family)
        assert "cluster.groups[0].nodes: a range; allowed: one number; pareto" in err


# Useful sequences


@pytest.fixture
def spot_family(tmp_path: Path) -> Path:
    """The cluster of the example on spot, of which any nodes may be rented."""
    text = (ROOT / "docs" / "examples" / "spot.yaml").read_text(encoding="utf-8")
    text = text.replace("nodes: 1\n", "nodes: {max: 1}\n")
    text = text.replace("nodes: 2\n", "nodes: {max: 2}\n")
    path = tmp_path / "spot.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_front_of_useful_sequences_says_what_it_is_of(spot_family: Path, tmp_path: Path) -> None:
    """Columns, terms and assumptions are named, on the page and in the picture too."""
    out, svg, page = (tmp_path / name for name in ("front.json", "front.svg", "page.html"))
    text = output("pareto", spot_family, *QUICK, "--out", out, "--svg", svg)
    for words in ("kept", "useful", "on spot", "of a million useful sequences", "121.0 s"):
        assert words in text
    assert "useful sequences/s" in svg.read_text(encoding="utf-8")
    assert run("report", out, "--out", page)[0] == 0
    assert "useful sequences/s" in page.read_text(encoding="utf-8")
    assert run("show", out)[1] == text
    assert run("verify", out, "--instance", spot_family)[0] == 0
    [*_, last] = json.loads(out.read_text(encoding="utf-8"))["points"]
    assert last["terms"][0]["on_spot"] == ["a10b"]


@pytest.mark.slow
def test_budgets_and_deadlines_of_useful_sequences(spot_family: Path) -> None:
    """Money and time with what preemptions take off; spot nodes where there is no hurry."""
    text = spot_family.read_text(encoding="utf-8").replace("limits: {max_step_time: 1.2 s}", "")
    spot_family.write_text(text, encoding="utf-8")
    for limit, on_spot in ((("--budget", 5), ["a10b"]), (("--deadline", "1h"), [])):
        [point] = points_of(spot_family, *MILLION, *limit)
        assert point["terms"][0]["on_spot"] == on_spot
    code, _, err = run("pareto", spot_family, *QUICK, *MILLION, "--budget", 4)
    assert code == 3
    assert "the least cost is 4.6" in err
    assert "by 1 a10b on spot, proved" in err


def test_bug_nodes_on_spot_alone_were_free(spot_family: Path) -> None:
    """Without a price on demand a group cost nothing where the objective knows no spot."""
    text = spot_family.read_text(encoding="utf-8").replace("      price: 8.14 USD/h\n", "")
    text = text.replace("minimize: cost_per_useful_sequence", "minimize: step_time")
    spot_family.write_text(text, encoding="utf-8")
    err = refused("pareto", spot_family, *QUICK)
    assert "a10a has a price on spot alone; allowed: a price on demand, or objective" in err
