"""The command `templates`: output, exit codes and errors."""

import json
from pathlib import Path

import pytest

from formulations.template import Template
from tests.command_line import output, refused, run
from tests.conftest import ROOT

SMALL = ROOT / "instances" / "homo_small.yaml"


def test_json_has_sizes_proof_and_templates() -> None:
    """4 nodes that each hold BERT-large: n0 = 1, one size, 2 to 4 nodes covered.

    Two pipelines of two nodes exchange less than four of one: templates of these, too.
    """
    code, out, _ = run("templates", SMALL, "--faults", 1, "--json")
    fields = json.loads(out)
    assert code == 0
    assert (fields["least_nodes"], fields["sizes"], fields["fewest_sizes"]) == (1, [1], [1])
    assert "every number of nodes from 2 on is covered" in " ".join(fields["coverage"])
    assert fields["pipelines"] == ["2: 2 pipelines", "3: 3 pipelines", "4: 4 pipelines"]
    assert [one["nodes"] for one in fields["templates"]] == [1, 2]
    for one in fields["templates"]:
        assert (one["status"], one["gap"]) == ("optimal", 0)
        assert one["step_time_s"] == one["bound_s"]
        assert Template.model_validate_json(json.dumps(one["template"])).num_layers == 26


def test_objective_of_oobleck_is_a_benchmark() -> None:
    """The option that chose it says so in one line."""
    err = refused("templates", SMALL, "--objective", "oobleck")
    assert "Oobleck's objective is a benchmark, python -m bench templates" in err


def test_fewer_sizes_and_what_merging_then_costs() -> None:
    """Sizes 3 to 5 and f = 2: 3 and 4 cover too, but 3 + 3 + 3 + 3 then become 4 + 4 + 3.

    Of 12 nodes that lose one, three pipelines are put together anew; with 5 = 2 + 3 two.
    """
    path = ROOT / "instances" / "oobleck_gpt3_6_7b.yaml"
    out = output("templates", path, "--faults", 2)
    words = " ".join(out.split())
    assert "fewest 3, 4 cover the same" in words
    assert "takes at most 2 pipelines apart; with the fewest sizes at most 3" in words


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--faults", 4), 3, "5 pipelines of 1 nodes or more need 5 nodes, the cluster has 4"),
        (("--faults", 1, "--micro-batch", 3), 2, "--micro-batch 3: not in search.micro_batch"),
    ],
)
def test_errors_are_one_line(arguments: tuple[object, ...], code: int, words: str) -> None:
    """Too many faults, a micro-batch that the instance does not list."""
    got, out, err = run("templates", SMALL, *arguments)
    assert (got, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_smaller_mixes_are_told(tmp_path: Path) -> None:
    """3 nodes of A40 or L4 hold GPT-3 2.7B, two of A40 do, and an A40 with an L4 does."""
    text = (ROOT / "instances" / "oobleck_mixed.yaml").read_text(encoding="utf-8")
    small = tmp_path / "small.yaml"
    small.write_text(text.replace("nodes: 18", "nodes: 4").replace("nodes: 12", "nodes: 3"))
    out = output("templates", small, "--faults", 1)
    assert "n0 = 3: the fewest nodes that hold the model, whichever they are; some" in out
    assert {"2: 2 a40", "2: 1 l4, 1 a40"} <= {line.split("  ")[0] for line in out.splitlines()}


def test_no_template_in_time_writes_no_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line says why there is no file."""
    monkeypatch.setattr(
        "solver.fleets.template_document.TemplatesDocument.designs", property(lambda _: ())
    )
    fleet = tmp_path / "fleet.json"
    _, _, err = run("templates", SMALL, "--out", fleet)
    assert err == "no fleet is written: no template was found in time; raise --time-limit\n"
    assert not fleet.exists()


def test_zones_and_tied_embeddings(tmp_path: Path) -> None:
    """BERT's head copies the embedding, the cluster has two zones: a fleet that verifies.

    `recover` takes the file, and two pipelines are left.
    """
    fleet = tmp_path / "fleet.json"
    path = ROOT / "instances" / "two_zones.yaml"
    assert run("templates", path, "--micro-batch", 8, "--out", fleet)[0] == 0
    assert run("verify", fleet)[0] == 0
    out = output("recover", fleet, "--lost", "a100-0", "--json")
    assert len(json.loads(out)["pipelines"]) == 2


def test_cluster_too_small_for_any_template(tmp_path: Path) -> None:
    """BERT-large on 4 nodes of GPUs with 1100 MiB, of which 1 GiB is reserved."""
    text = SMALL.read_text(encoding="utf-8")
    line = next(one for one in text.splitlines() if "memory:" in one)
    small = tmp_path / "small.yaml"
    small.write_text(
        text.replace(line, line.split("memory:")[0] + "memory: 1100 MiB").replace(
            "profiles/", f"{SMALL.parent}/profiles/"
        ),
        encoding="utf-8",
    )
    err = refused("templates", small, "--faults", 0, code=3)
    assert "no template fits into the memory of its nodes, not of all 4" in err
    assert err.count("\n") == 1
