"""The command `pareto`, of clusters and of subsets: output, files, exit codes and errors."""

import json
from pathlib import Path

import pytest

from tests.command_line import output, refused, run
from tests.conftest import ROOT

SMALL = ROOT / "instances" / "hetero_small.yaml"
QUICK = ("--workers", 1, "--gap", 0.01)


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """FASOP's small cluster, of which up to one A100 node and two of A10 may be rented."""
    text = SMALL.read_text(encoding="utf-8").replace("nodes: 1", "nodes: {max: 1}")
    text = text.replace("nodes: 3", "nodes: {min: 0, max: 2}")
    text = text.replace("profiles/", f"{ROOT / 'instances' / 'profiles'}/")
    path = tmp_path / "family.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_pareto_writes_a_front_that_verify_accepts(family: Path, tmp_path: Path) -> None:
    """A table, a picture and a file; `show`, `report` and `verify` take the file."""
    out, svg, page = (tmp_path / name for name in ("front.json", "front.svg", "page.html"))
    text = output("pareto", family, *QUICK, "--out", out, "--svg", svg)
    assert "of a million sequences" in text
    assert "every cluster is closed" in text
    assert svg.read_text(encoding="utf-8").startswith("<svg")
    assert run("verify", out, "--instance", family)[0] == 0
    assert run("verify", out, "--instance", SMALL)[0] == 1
    assert run("show", out)[1] == text
    assert run("report", out, "--out", page)[0] == 0
    assert "Other clusters" in page.read_text(encoding="utf-8")


def test_budget_and_deadline_give_one_point(family: Path) -> None:
    """The fastest cluster that a budget pays for, the cheapest that is in time."""
    million = ("--sequences", 10**6, "--json")
    whole = json.loads(run("pareto", family, *QUICK, *million)[1])
    costs = [point["terms"][0]["training_cost_usd"] for point in whole["points"]]
    budget = ("--budget", 1.001 * costs[-1])
    fast = json.loads(run("pareto", family, *QUICK, *million, *budget)[1])
    assert [point["nodes"] for point in fast["points"]] == [whole["points"][-1]["nodes"]]
    cheap = json.loads(run("pareto", family, *QUICK, *million, "--deadline", "100d")[1])
    assert [point["nodes"] for point in cheap["points"]] == [whole["points"][-1]["nodes"]]
    code, out, _ = run("pareto", family, *QUICK, "--sequences", 10**6, "--budget", 1e-6)
    assert code == 3
    assert "without a plan within the limits" in out


def test_subsets_name_what_every_group_brings(tmp_path: Path) -> None:
    """One A100 node does more than three A10 nodes; all together are best."""
    path = tmp_path / "subsets.json"
    out = output("pareto", "--subsets", SMALL, *QUICK, "--out", path)
    assert run("verify", path, "--instance", SMALL)[0] == 0
    assert "1 a100, 3 a10" in out
    assert "without a100" in out
    assert "without a10 " in out


def test_bug_page_of_subsets_drew_a_front_of_money(tmp_path: Path) -> None:
    """Its clusters are compared by time and nodes: those behind are behind the line."""
    path, page = tmp_path / "subsets.json", tmp_path / "page.html"
    assert run("pareto", "--subsets", SMALL, *QUICK, "--out", path)[0] == 0
    assert run("report", path, "--out", page)[0] == 0
    text = page.read_text(encoding="utf-8")
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
    code, out, err = run("pareto", *(family if one == "FAMILY" else one for one in arguments))
    assert (code, out) == (2, "")
    assert error in " ".join(err.split())


def test_clusters_without_prices_are_refused(family: Path) -> None:
    """There is nothing to compare them by."""
    lines = family.read_text(encoding="utf-8").splitlines()
    family.write_text("\n".join(line for line in lines if "price:" not in line), encoding="utf-8")
    assert "cluster.groups: no price; allowed: the price of one node" in refused("pareto", family)


def test_other_commands_name_pareto_for_a_range(family: Path) -> None:
    """A family is no instance; the line says who takes it."""
    for command in ("solve", "templates"):
        err = refused(command, family)
        assert "cluster.groups[0].nodes: a range; allowed: one number; pareto" in err


@pytest.fixture
def spot_family(tmp_path: Path) -> Path:
    """The cluster of the example on spot, of which any nodes may be rented."""
    text = (ROOT / "docs" / "examples" / "spot.yaml").read_text(encoding="utf-8")
    text = text.replace("nodes: 1\n", "nodes: {max: 1}\n").replace(
        "nodes: 2\n", "nodes: {max: 2}\n"
    )
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


def test_budgets_and_deadlines_of_useful_sequences(spot_family: Path, tmp_path: Path) -> None:
    """Money and time with what preemptions take off; spot nodes where there is no hurry."""
    text = spot_family.read_text(encoding="utf-8").replace("limits: {max_step_time: 1.2 s}", "")
    spot_family.write_text(text, encoding="utf-8")
    out = tmp_path / "front.json"
    million = ("pareto", spot_family, *QUICK, "--sequences", 10**6, "--out", out)
    for limit, on_spot in ((("--budget", 5), ["a10b"]), (("--deadline", "1h"), [])):
        assert run(*million, *limit)[0] == 0
        [point] = json.loads(out.read_text(encoding="utf-8"))["points"]
        assert point["terms"][0]["on_spot"] == on_spot
        assert run("verify", out)[0] == 0
    code, _, err = run(*million, "--budget", 4)
    assert code == 3
    assert "the least cost is 4.6" in err
    assert "by 1 a10b on spot, proved" in err


def test_a_limit_too_tight_names_the_least_there_is(family: Path) -> None:
    """The least cost by the deadline, else the least time, and who reaches it, proved."""
    million = ("pareto", family, *QUICK, "--sequences", 10**6)
    for limits, least in (
        (("--budget", 1e-6), "the least cost is"),
        (("--deadline", "1s"), "the least time is"),
        (("--budget", 1e-6, "--deadline", "1s"), "the least time is"),
        (("--budget", 1e-6, "--deadline", "100d"), "the least cost is"),
    ):
        code, _, err = run(*million, *limits)
        assert code == 3
        [line] = [one for one in err.splitlines() if "no cluster within" in one]
        assert least in line
        assert "by 1 a1" in line
        assert line.endswith("proved within 1.0 %")


def test_bug_nodes_on_spot_alone_were_free(spot_family: Path) -> None:
    """Without a price on demand a group cost nothing where the objective knows no spot."""
    text = spot_family.read_text(encoding="utf-8").replace("      price: 8.14 USD/h\n", "")
    text = text.replace("minimize: cost_per_useful_sequence", "minimize: step_time")
    spot_family.write_text(text, encoding="utf-8")
    err = refused("pareto", spot_family, *QUICK)
    assert "a10a has a price on spot alone; allowed: a price on demand, or objective" in err
