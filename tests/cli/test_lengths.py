"""Promises of `lengths`: the strategies for a step of many lengths, and its file."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from formulations.instance.load import load_instance
from formulations.lengths.problem import Strategy
from formulations.lengths.strategy_time import strategy_times
from formulations.units import seconds
from solver.files import sealed, to_json
from solver.lengths.candidates import candidates
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.switching.documented import switch_document
from tests.command_line import output, refused, run
from tests.mixed_rows import SIZES, SMALL

TABLE = """
  strategies:
    - {name: wide, data_parallel: 1, tensor_parallel: 4, pipeline_parallel: 1, longest_row: 8192,
       row_times: {1024: 4 ms, 8192: 48 ms}}
    - {data_parallel: 4, tensor_parallel: 1, pipeline_parallel: 1, longest_row: 2048,
       row_times: {1024: 10 ms, 2048: 20 ms}}
  switching: [{leave: wide, enter: "dp 4, tp 1, pp 1", parameters: 100 ms, gradients: 200 ms}]
"""


def written(folder: Path, text: str) -> Path:
    """An instance file."""
    path = folder / "small.yaml"
    path.write_text(text.replace("SIZES", SIZES))
    return path


def test_measured_strategies(tmp_path: Path) -> None:
    """Strategies of a table take what they took: 8192 tokens on `wide` 48 ms, 4096 at most that."""
    out = output("lengths", written(tmp_path, SMALL + TABLE))
    wide = next(line for line in out.splitlines() if line.startswith("wide"))
    assert wide.split()[:5] == ["wide", "1", "1", "8,192", "4.0"]
    assert "dp 4, tp 1, pp 1" in out
    words = " ".join(out.split())
    assert "48 sequences per step of 3 lengths, 8,000 tokens at most, half of them up to 512" in (
        words
    )
    # What its rows take with whole sequences, and how far that may be off
    dealt = words[words.index("dealt out") :]
    assert "for all rows with whole sequences, by formula" in dealt
    assert "no dispatch takes" in dealt


def test_bug_rows_of_any_length_took_as_long_as_the_one_measured(tmp_path: Path) -> None:
    """8000 tokens, of 10 ms for 1024, take 113.6 ms; `verify` agrees.

    FLOPs by the token, of s: 8 layers of 2 (4 2048^2 + 3 2048 5504) + 4 s 2048, and the head's
    2 2048 32000, are 940,572,672 + 65,536 s. So 8000 / 1024 * 1,464,860,672 / 1,007,681,536.
    """
    text = SMALL + TABLE.replace("{1024: 4 ms, 8192: 48 ms}", "{1024: 10 ms}")
    path, out = written(tmp_path, text), tmp_path / "step.json"
    told = " ".join(output("lengths", path, "--out", out).split())
    assert "of wide, with a single row, by the model's FLOPs" in told
    document = LengthsDocument.model_validate_json(out.read_text())
    [wide, _] = document.problem.strategies
    curve = wide.replicas[0].time
    row_ns = 8000 * (8000 * curve.per_square_ns + curve.per_token_ns) + curve.per_row_ns
    assert row_ns == pytest.approx(113.5698e6, rel=1e-6)
    assert "verified" in output("verify", out)


def test_measured_classes(tmp_path: Path) -> None:
    """Times of whole classes make a strategy that runs these classes and no others."""
    text = (SMALL + TABLE).replace("longest_row: 2048", "class_times: {512: 2 s, 2048: 4 s}")
    text = text.replace(",\n       row_times: {1024: 10 ms, 2048: 20 ms}", "")
    path = written(tmp_path, text)
    mixed = candidates(load_instance(path)).mixed
    assert mixed.strategies[1] == Strategy(
        "dp 4, tp 1, pp 1", atoms_ns=(2 * 10**9, 4 * 10**9, None)
    )
    assert mixed.switching.gradients_ns == ((0, 200_000_000), (200_000_000, 0))
    assert run("lengths", path)[0] == 0


def test_what_strategies_take_once(tmp_path: Path) -> None:
    """A strategy alone takes its rows, one reduction of gradients, and the optimizer."""
    once = "pipeline_parallel: 1, per_visit: 2 s, per_step: 3 s, longest"
    text = (SMALL + TABLE).replace("pipeline_parallel: 1, longest", once)
    output("lengths", written(tmp_path, text), "--out", tmp_path / "step.json")
    document = LengthsDocument.model_validate_json((tmp_path / "step.json").read_text())
    wide = document.problem.strategies[0]
    assert (wide.visit_ns, wide.anchor_ns) == (2 * 10**9, 3 * 10**9)
    assert document.single is not None
    alone = strategy_times(document.problem)[0].of_set((0, 1, 2))
    assert alone is not None
    assert document.single.step_ns == alone + 3 * 10**9
    _, out, _ = run("show", tmp_path / "step.json", "--svg", tmp_path / "step.svg")
    assert "2.000 s in reduction of gradients, 3.000 s in optimizer" in out
    picture = (tmp_path / "step.svg").read_text()
    assert "gradients reduced by wide, 2.000 s" in picture
    assert "optimizer of wide, 3.000 s" in picture


def test_plans_of_strategies_are_plan_files(tmp_path: Path) -> None:
    """`--plans` writes what `verify` and `export` take; measured strategies have no plans."""
    step, plans = tmp_path / "step.json", tmp_path / "plans"
    path = written(tmp_path, SMALL)
    assert run("lengths", path, "--out", step, "--plans", plans)[0] == 0
    document = LengthsDocument.model_validate_json(step.read_text())
    assert document.single
    # Of two of them `switch` finds the time that the step was chosen by
    first, *_, last = document.plans
    time_ns = document.problem.switching.parameters_ns[0][-1] or 0
    assert switch_document(first, last, "parameters", None).time_s == seconds(time_ns)
    ran = {document.anchor, *(group.strategy for group in document.groups)}
    used = ran | {document.single.strategy}
    assert len(list(plans.iterdir())) == len(used)
    for plan in plans.iterdir():
        assert run("verify", plan)[0] == 0
        out = tmp_path / plan.stem
        assert run("export", plan, "--to", "megatron", "--out", out)[0] == 0
    err = refused("lengths", written(tmp_path, SMALL + TABLE), "--plans", tmp_path / "none")
    assert "strategies that were measured" in err
    assert not (tmp_path / "none").exists()


MEASURED = SMALL + TABLE
PRICED = SMALL.replace("nodes: 1,", "nodes: 1, price: 2 USD/h,")
LEARNED = SIZES.replace("rotary_positions: true", "learned_positions: 8064")
HUGE = SIZES.replace("hidden_size: 2048, layers: 8", "hidden_size: 16384, layers: 100")
REFUSED = {
    # A row is one sequence, so no longer than learned positions, at its line and column
    "learned positions": (
        MEASURED.replace("SIZES", LEARNED),
        2,
        "row_times.8192: a sequence of 8192 tokens on 8064 learned positions",
    ),
    # Of the file of a step a time has 47 bits, of the instance it had 100 h: a traceback
    "switch of days": (
        MEASURED.replace("parameters: 100 ms", "parameters: 50 h"),
        2,
        "switching[0].parameters: '50 h'; allowed: at least 0 and at most 24 h",
    ),
    # 3 replicas never fill 4 GPUs, however short the sequences
    "no layout": (
        SMALL.replace("zero: 1", "data_parallel: 3"),
        3,
        "search: no layout over all 4 GPUs",
    ),
    "no room": (SMALL.replace("SIZES", HUGE), 3, "none has room for a row"),
    # Sequences that no measured one takes need one that does, whatever the search allows
    "too long": (
        MEASURED.replace("longest_row: 8192", "longest_row: 7999"),
        3,
        "error: lengths: sequences of 8000 tokens, 2 a step, fit no strategy: 7999 tokens at most;"
        " cut them off there, or measure a strategy for them",
    ),
    # Limits were not kept
    "price": (
        f"{PRICED}limits: {{max_price_per_hour: 1 USD/h}}",
        3,
        "limits.max_price_per_hour: all nodes",
    ),
    "time": (
        f"{PRICED}{TABLE}limits: {{max_step_time: 1 ms}}",
        3,
        "limits.max_step_time, max_cost_per_step: 0.001 s at most",
    ),
    "cost": (
        f"{PRICED}{TABLE}limits: {{max_cost_per_step: 0.000001 USD}}",
        3,
        "limits.max_step_time, max_cost_per_step: 0.0018 s",
    ),
    "no lengths": (
        SMALL[: SMALL.index("lengths:")].replace(
            "SIZES}", "SIZES, sequence_length: 64, global_batch: 8}"
        ),
        2,
        "no section lengths; allowed: one with histogram, file or log_normal",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bug_what_cannot_be_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """With its exit code, and without a file."""
    text, code, said = REFUSED[name]
    out = tmp_path / "step.json"
    assert said in refused("lengths", written(tmp_path, text), "--out", out, code=code)
    assert not out.exists()


def test_a_row_as_long_as_the_longest_sequence_is_enough(tmp_path: Path) -> None:
    """With one token less, above, there is no strategy."""
    path = written(tmp_path, MEASURED.replace("longest_row: 8192", "longest_row: 8000"))
    assert run("lengths", path)[::2] == (0, "")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance whose two strategies both pay, and its step in free order."""
    folder = tmp_path_factory.mktemp("lengths")
    text = (SMALL + TABLE).replace("SIZES", SIZES).replace("count: 40}", "count: 4000}")
    text = text.replace("10 ms, 2048: 20 ms", "1 ms, 2048: 2 ms")
    (folder / "small.yaml").write_text(text)
    step, picture = folder / "step.json", folder / "step.svg"
    output("lengths", folder / "small.yaml", "--order", "free", "--out", step, "--svg", picture)
    return folder


def test_a_step_is_verified(files: Path) -> None:
    """With its instance, whose digest it holds, and not with another one."""
    step = files / "step.json"
    code, out, err = run("verify", step, "--instance", files / "small.yaml")
    assert code == 5  # in any order the bound is CP-SAT's word
    assert "CP-SAT's word" in out + err
    other = files / "other.yaml"
    other.write_text((files / "small.yaml").read_text().replace("count: 4000", "count: 4001"))
    code, out, _ = run("verify", step, "--instance", other)
    assert code == 1
    assert "refused: instance.lengths.classes[0].count: found" in out


def test_bug_forged_times_passed_as_those_of_the_instance(files: Path) -> None:
    """A right step of other strategies is one by itself, but not of the instance in the file."""
    document = LengthsDocument.model_validate_json((files / "step.json").read_text())
    mixed = document.problem
    strategies = (replace(mixed.strategies[0], visit_ns=7), *mixed.strategies[1:])
    chosen = choose(replace(mixed, strategies=strategies), "ascending")
    forged = files / "forged_times.json"
    name, above = document.workload, document.above
    forged.write_text(to_json(build_lengths(chosen, name, document.instance, (), above)))
    code, out, _ = run("verify", forged)
    assert code == 1
    assert "refused: problem.strategies[0].visit_ns: found 7, expected 0" in out


def test_a_step_is_shown_and_drawn(files: Path) -> None:
    """A line for each group, the best single strategy, and a picture with a bar for each."""
    out = output("show", files / "step.json", "--svg", files / "shown.svg")
    document = json.loads((files / "step.json").read_text())
    assert len(document["groups"]) == 2
    for name in ("dp 4, tp 1, pp 1", "wide", "best single", "times as long"):
        assert name in out
    drawn = ET.parse(files / "shown.svg").getroot()
    titles = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert sum("tokens" in title for title in titles) == 2
    assert sum(title.startswith("switch of") for title in titles) == len(document["switches"]) == 2
    assert (files / "shown.svg").read_text() == (files / "step.svg").read_text()


def test_bug_the_single_strategy_was_one_bar(files: Path) -> None:
    """Its rows, reduction of gradients and optimizer, as those of the step; all in the legend."""
    text = (files / "small.yaml").read_text()
    text = text.replace("8192: 48 ms}", "8192: 48 ms}, per_visit: 30 ms, per_step: 70 ms")
    (files / "once.yaml").write_text(text)
    assert run("lengths", files / "once.yaml", "--svg", files / "once.svg")[0] == 0
    drawn = ET.parse(files / "once.svg").getroot()
    titles = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    single = next(n for n, title in enumerate(titles) if title.startswith("wide: all sequences"))
    reduced, optimizer = titles[single + 1 :]
    assert reduced.startswith("gradients reduced by wide, 30")
    assert optimizer.startswith("optimizer of wide, 70")
    legend = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert legend[-1].endswith("; best single: 70.00 ms")


def test_a_step_has_a_page(files: Path) -> None:
    """It needs no network, and names every strategy; a changed file is not shown."""
    code, out, err = run("report", files / "step.json", "--out", files / "step.html")
    assert (code, err, out) == (0, "", f"wrote {files / 'step.html'}\n")
    page = (files / "step.html").read_text()
    assert "http" not in page
    assert page.count("dp 4, tp 1, pp 1") >= 3
    refused("report", files / "step.json", "--trace", files / "t.json")
    document = LengthsDocument.model_validate_json((files / "step.json").read_text())
    forged = files / "forged.json"
    forged.write_text(to_json(sealed(document.model_copy(update={"step_time_s": 1e-3}))))
    for words in (("show", forged, "--svg"), ("report", forged, "--out")):
        assert "step_time_s: found 0.001" in refused(*words, files / "x")
    assert run("verify", forged)[0] == 1


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("schema_version",), 9, "schema version 9; allowed: 5; run lengths again"),
        (("problem", "atoms", 0, "tokens"), 4000, "by ascending tokens"),
        (("problem", "switching", "gradients_ns"), [[0]], "a table of switches of another size"),
        (("problem", "strategies", 0, "replicas"), [], "replicas and atoms_ns; allowed: one"),
        (
            ("problem", "strategies", 0, "replicas", 0, "time", "rows_ns"),
            [[5, 5]],
            "1 rows_ns, packed",
        ),
        (("problem", "rowz"), 5, "problem.rowz"),
        (("groups",), [], "groups"),
    ],
)
def test_files_that_are_none(
    path: tuple[str | int, ...], value: object, said: str, files: Path
) -> None:
    """One line that says where, what was found and what is allowed."""
    document = json.loads((files / "step.json").read_text())
    at = document
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    broken = files / "broken.json"
    broken.write_text(json.dumps(document))
    assert said in refused("verify", broken)


def test_bug_solve_did_not_say_that_it_leaves_lengths_out_of_account(files: Path) -> None:
    """Its plan is for sequences that are all as long as the workload's."""
    out = output("solve", files / "small.yaml", "--gap", 0.5, "--workers", 1)
    assert "lengths       not looked at: all sequences as " in out
