"""How far the analytic model is from measured steps, by kind of evidence; regret of choices.

    python -m bench accuracy [--out RECORDS] [--picture FILE] [--draws N]

Judges every row of the folder that HETPLAN_REFERENCE names, whatever its files are called
(`evidence`). A row that is the run of a plan of ours is simulated; the others are counted by what
they lack. `fitted`: what of the catalogue was fitted to rows of that line; where it says nothing,
no figure was. Regret: how much slower the step with the shortest prediction is than the shortest
measured one, mean over choices of several rows. Then the regret of measuring the first rows of a
`shortlist` of every choice and taking the fastest, beside as many rows of the shortest predictions.
Then, on measured steps of A100 (`accuracy_choices`), error and regret of corrections by measured
steps and of other rules.

Records go to bench/results/accuracy.jsonl, the picture to bench/results/accuracy.svg.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.table import Table

from bench.accuracy_choices import DRAWS, choices, figures
from bench.command import command, new_table, wide_console
from bench.evidence import Evidence, read
from bench.records import RESULTS, append, record, reference
from bench.runs import Case, step_s
from bench.scatter import Point, scatter_picture
from solver.evaluate.shortlist import picked
from solver.uncertainty import covariance, step_estimate

Figures = dict[str, Any]

#: What was fitted to rows of a source and kind that are marked as fitted.
FITTED: Mapping[tuple[str, str], str] = {
    ("vTrain", "one node"): "A100's measured layers, to half of such rows"
}


def predicted(case: Case) -> Figures:
    """The row with our step, or with what is missing."""
    figures: Figures = {
        "source": case.source,
        "kind": case.kind,
        "fitted": case.fitted,
        "model": case.model,
        "row": case.label,
        "system": case.system,
        "precision": case.precision,
        "measured_s": case.measured_s,
        "published_prediction_s": case.other_s,
        "why_not": case.why_not,
        "predicted_s": None,
        "error": None,
        "choice": case.choice,
    }
    if case.plan is None or case.measured_s is None:
        return figures
    ours_s = step_s(case.plan)
    return figures | {"predicted_s": ours_s, "error": ours_s / case.measured_s - 1}


def _groups(rows: Iterable[Figures], *keys: str) -> dict[tuple[Any, ...], list[Figures]]:
    """Rows by what they have under these keys, in order of first mention."""
    groups: dict[tuple[Any, ...], list[Figures]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def regret(rows: Sequence[Figures]) -> float | None:
    """Mean over choices of several rows; None without any."""
    several = [
        group
        for (choice,), group in _groups(rows, "choice").items()
        if choice is not None and len(group) > 1
    ]
    if not several:
        return None
    return fmean(
        min(group, key=lambda row: row["predicted_s"])["measured_s"]
        / min(row["measured_s"] for row in group)
        - 1
        for group in several
    )


def summary(rows: Sequence[Figures]) -> Figures:
    """What the errors of rows come to."""
    errors = np.array([row["error"] for row in rows])
    pairs = [(row["published_prediction_s"], row["measured_s"]) for row in rows]
    published = [abs(other / measured - 1) for other, measured in pairs if other]
    return {
        "rows": len(rows),
        "signed": float(errors.mean()),
        "mean": float(np.abs(errors).mean()),
        "median": float(np.median(np.abs(errors))),
        "p90": float(np.percentile(np.abs(errors), 90)),
        "worst": float(errors[np.abs(errors).argmax()]),
        "regret": regret(rows),
        "published": fmean(published) if published else None,
    }


def summaries(rows: Sequence[Figures], *keys: str) -> list[Figures]:
    """One of every group of rows, with how many of its source have no plan of ours."""
    found = []
    for group, members in _groups(rows, *keys).items():
        expressible = [row for row in members if row["error"] is not None]
        if expressible:
            head = dict(zip(keys, group, strict=True))
            found.append(head | {"of": len(members)} | summary(expressible))
    return found


def table(rows: Sequence[Figures], *keys: str) -> Table:
    """Errors in per cent, a line per group."""
    names = ("signed", "mean", "median", "p90", "worst", "regret", "published")
    result = new_table((*keys, "fitted"), ("rows", *(f"{name} %" for name in names)))
    for row in summaries(rows, *keys, "fitted"):
        cells = ["" if row[name] is None else f"{100 * row[name]:.1f}" for name in names]
        fitted = FITTED.get((row["source"], row.get("kind", "")), "yes") if row["fitted"] else ""
        result.add_row(*(str(row[key]) for key in keys), fitted, str(row["rows"]), *cells)
    return result


def choice_table(rows: Sequence[Figures]) -> Table:
    """Error and regret by rule."""
    result = new_table(("layer times, or rule",), ("steps", "error %", "regret %"))
    for row in rows:
        error = "" if row["error"] is None else f"{100 * row['error']:.1f}"
        result.add_row(row["rule"], str(row["steps"]), error, f"{100 * row['regret']:.2f}")
    return result


def picture(rows: Sequence[Figures]) -> str:
    """Predicted over measured seconds, a colour per source."""
    points = [
        Point(row["source"], row["measured_s"], row["predicted_s"])
        for row in sorted(rows, key=lambda row: str(row["source"]))
    ]
    return scatter_picture("steps of training", "measured, s", "predicted, s", points)


def left_out(rows: Sequence[Figures]) -> list[Figures]:
    """How many rows of a source have no plan of ours, by the reason."""
    counts = Counter((row["source"], row["why_not"]) for row in rows if row["why_not"])
    return [{"source": s, "why": why, "rows": count} for (s, why), count in counts.items()]


#: Measured steps after which a choice is made.
MEASURED = (1, 3, 5)


def shortlists(cases: Iterable[Case]) -> list[Figures]:
    """A line per source, kind and number of measured rows: regret of shortlist and of ranking."""
    groups: dict[tuple[str, str], dict[Any, list[Case]]] = {}
    for case in cases:
        if case.choice is not None and case.plan is not None and case.measured_s is not None:
            choices = groups.setdefault((case.source, case.kind), {})
            choices.setdefault(case.choice, []).append(case)
    lines = []
    for (source, kind), choices in groups.items():
        several = [members for members in choices.values() if len(members) > 1]
        regrets: dict[int, list[tuple[float, float]]] = {count: [] for count in MEASURED}
        for members in several:
            estimates = [step_estimate(*case.plan) for case in members if case.plan]
            means = np.array([estimate.log_s for estimate in estimates])
            times = np.array([case.measured_s for case in members])
            listed = [i for i, _ in picked(means, covariance(estimates), MEASURED[-1])]
            for count, pairs in regrets.items():
                fastest = (times[order[:count]].min() for order in (listed, means.argsort()))
                shortlisted, ranked = (float(time / times.min()) - 1 for time in fastest)
                pairs.append((shortlisted, ranked))
        for count, pairs in regrets.items():
            if pairs:
                mean = dict(
                    zip(("shortlist", "ranking"), map(fmean, zip(*pairs, strict=True)), strict=True)
                )
                lines.append(
                    {"source": source, "kind": kind, "choices": len(several), "measured": count}
                    | mean
                )
    return lines


def shortlist_table(lines: Sequence[Figures]) -> Table:
    """Regret by source and number of measured rows."""
    result = new_table(
        ("source", "kind"), ("choices", "measured", "regret of shortlist %", "of ranking %")
    )
    for line in lines:
        shares = (f"{100 * line[name]:.2f}" for name in ("shortlist", "ranking"))
        result.add_row(
            line["source"], line["kind"], str(line["choices"]), str(line["measured"]), *shares
        )
    return result


def rules(folder: Path, draws: int) -> list[Figures]:
    """Error and regret of every rule; none where no choice has several measured steps."""
    steps = choices(folder)
    return list(figures(steps, draws)) if any(len(rows) > 1 for rows in steps.values()) else []


def main() -> None:
    """Runs the benchmark."""
    parser = command("accuracy")
    parser.add_argument("--picture", type=Path, default=RESULTS / "accuracy.svg")
    parser.add_argument("--draws", type=int, default=DRAWS, help="of one step per kernel shape")
    chosen = parser.parse_args()
    folder = reference()
    evidence: Evidence = read(folder)
    rows = [predicted(case) for case in evidence.cases]
    done = [row for row in rows if row["error"] is not None]
    by_rule = rules(folder, chosen.draws)
    listed = shortlists(evidence.cases)
    found = {
        "summary": summaries(rows, "source", "kind", "fitted"),
        "by_model": summaries(rows, "source", "model", "system", "precision", "fitted"),
        "left_out": left_out(rows),
        "not_read": evidence.unread,
        "shortlists": listed,
        "choices": by_rule,
        "draws": chosen.draws,
    }
    append(chosen.out, [record("accuracy", found)])
    console = wide_console()
    console.print(table([row for row in rows if row["source"] != "vTrain"], *DETAILS))
    console.print(table(rows, "source", "kind"))
    if listed:
        console.print(shortlist_table(listed))
    if by_rule:
        console.print(choice_table(by_rule))
    if done:
        chosen.picture.write_text(picture(done), encoding="utf-8")
    console.print(f"{len(done)} of {len(rows)} rows are runs of plans of ours")
    for reason in left_out(rows):
        console.print(f"{reason['source']}: {reason['rows']} left out: {reason['why']}")
    if evidence.unread:
        console.print(f"no measured step of a kind known here: {', '.join(evidence.unread)}")


DETAILS = ("source", "model", "system", "precision")
