"""Answers side by side: methods, two plans, what runs and the best, a plan and its changes."""

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

from rich.console import Group

from formulations.instance.targets import TARGETS
from formulations.units import seconds
from solver.document import PlanDocument
from solver.files import fields_of
from solver.plan_figures import step_of
from solver.report.critical import summary
from solver.report.explained import answers_json, changes_table
from solver.report.layout import Grid, Labelled, Lines, Parts, table_of
from solver.report.naming import DEGREES, degrees_line, one_line
from solver.report.quantities import counted, money, percent, significant, size_text, time_text
from solver.report.stages import alike, all_stages, memory_table, placed, stage_table
from solver.report.text import batches_text, config_text, figures, heading_lines
from solver.result import Comparison, Evaluation, Finding, Result, Shortlist, Status

_HOUR_NS = 3600e9


# Methods


def comparison_text(comparison: Comparison) -> Parts:
    """The findings, one line per method, and whether they agree."""
    by_time = comparison.instance.objective.minimize == "step_time"
    longest_s = max(comparison.objective or 0.0, comparison.bound or 0.0) / 1e9

    def worth(objective: float | None) -> str:
        if objective is None:
            return "-"
        return time_text(objective / 1e9, longest_s) if by_time else money(objective / _HOUR_NS)

    def share(share: float | None) -> str:
        return "-" if share is None else percent(share)

    def stopped(finding: Finding) -> str:
        why = finding.termination
        return f", {why.replace('_', ' ')}" if why in ("time_limit", "interrupted") else ""

    findings = table_of(
        comparison.findings,
        {
            "method": lambda finding: finding.method,
            "status": lambda finding: f"{finding.status}{stopped(finding)}",
            DEGREES: lambda finding: (
                degrees_line(finding.config, finding.config.degrees_used) if finding.config else "-"
            ),
        },
        {
            "step time" if by_time else "money": lambda finding: worth(finding.objective),
            "lower bound": lambda finding: worth(finding.bound),
            "gap": lambda finding: share(finding.gap),
            "above best bound": lambda finding: share(comparison.above(finding)),
            "seconds": lambda finding: significant(finding.runtime_s, 3),
        },
    )
    clashes = comparison.contradictions
    proofs = sum(finding.bound is not None for finding in comparison.findings)
    number = "is 1" if proofs == 1 else f"are {proofs}"
    verdict = f"no plan is below a proved bound, of which there {number}"
    if not proofs:
        verdict = "nothing to contradict: no method proved a bound"
    if clashes:
        verdict = f"{counted(len(clashes), 'contradiction')}: one of the methods is wrong"
    return [findings, Labelled([("verdict", verdict)], (("", clash) for clash in clashes))]


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """The same as data. objective, lower_bound: in `unit`, s or USD per step."""
    by_time = comparison.instance.objective.minimize == "step_time"

    def scaled(value: float | None, scale: float = 1e9 if by_time else _HOUR_NS) -> float | None:
        return None if value is None else value / scale

    return {
        "instance": comparison.instance.name,
        "minimize": comparison.instance.objective.minimize,
        "unit": "s" if by_time else "USD",
        "objective": scaled(comparison.objective),
        "lower_bound": scaled(comparison.bound),
        "methods": [
            {
                **fields_of(finding, "method", "status", "termination"),
                "config": finding.config and finding.config.model_dump(mode="json"),
                "step_time_s": scaled(finding.step_time_ns, 1e9),
                "objective": scaled(finding.objective),
                "lower_bound": scaled(finding.bound),
                "gap": finding.gap,
                "above_best_bound": comparison.above(finding),
                "runtime_s": finding.runtime_s,
            }
            for finding in comparison.findings
        ],
        "contradictions": list(comparison.contradictions),
    }


# Two plans


#: What plans are compared by: a label, its text beside a larger one, and its value; None: none.
FIELDS: tuple[
    tuple[str, Callable[[float, float], str], Callable[[PlanDocument], float | None]], ...
] = (
    ("step time", time_text, attrgetter("step_time_s")),
    ("  compute", time_text, attrgetter("critical_path.compute_s")),
    ("  transfers between stages", time_text, attrgetter("critical_path.transfers_s")),
    ("  gradient sync", time_text, attrgetter("critical_path.gradient_sync_s")),
    ("  sync of tied embeddings", time_text, attrgetter("critical_path.embedding_sync_s")),
    ("  optimizer", time_text, attrgetter("critical_path.optimizer_s")),
    ("lower bound", time_text, attrgetter("lower_bound_s")),
    (
        "throughput",
        lambda rate, _: f"{significant(rate)} sequences/s",
        attrgetter("throughput_sequences_per_s"),
    ),
    ("MFU", lambda share, _: percent(share), attrgetter("mfu")),
    (
        "fullest GPU",
        size_text,
        lambda plan: max((stage.memory_bytes for stage in all_stages(plan)), default=None),
    ),
    ("money per step", lambda usd, _: money(usd), attrgetter("cost_usd_per_step")),
    (
        "money per useful sequence",
        lambda usd, _: money(usd),
        lambda plan: plan.renting.cost_usd_per_useful_sequence if plan.renting else None,
    ),
)


def distinct_names(first: str, second: str) -> tuple[str, str]:
    """What two plan files are called: by their names, unless these are the same."""
    names = Path(first).name, Path(second).name
    return ("first", "second") if len({*names}) == 1 else names


def difference(
    first: PlanDocument, second: PlanDocument, names: tuple[str, str]
) -> tuple[Labelled, Grid]:
    """Both plans in words, then every figure that is not 0 in both, and the difference."""
    lines, rows = [], []
    for name, plan in zip(names, (first, second), strict=True):
        lines += [(name, config_text(plan)), ("", batches_text(plan))]
    for label, text, value in FIELDS:
        a, b = value(first), value(second)
        if a is None or b is None or not (a or b):
            continue
        change, sign, largest = b - a, "+" if b > a else "", max(a, b)
        share = f" ({sign}{percent(change / a)})" if a else ""
        changed = f"{sign}{text(change, largest)}{share}"
        if label == "MFU":
            changed = f"{100 * change:+.1f} points"
        rows.append((label, text(a, largest), text(b, largest), changed if change else "none"))
    return Labelled(lines), Grid(("",), (*names, "difference"), rows)


# What runs today, and the best plan


def evaluation_text(document: PlanDocument, evaluation: Evaluation) -> Parts:
    """Stages, memory, time, limits that are broken, distance from the best, single changes."""
    lines = []
    for row in alike(document):
        limit = row.figures.memory_limit_bytes
        over = row.figures.memory_bytes - limit
        if not row.chunk and over > 0:
            text = f"{size_text(over, limit)} too much on stage {row.stage}"
            lines.append(
                ("over memory", f"{placed(document.instance.cluster, row.stages)}: {text}")
            )
    broken = (text for text in evaluation.broken if text.startswith("instance.limits"))
    lines += [("over limit", text) for text in broken]
    path = summary(document, step_of(document))
    yield Labelled(heading_lines(document))
    yield stage_table(document)
    yield Group("memory per GPU", memory_table(document))
    yield Labelled(figures(document), path, lines, _distance(document, evaluation))
    if evaluation.changes:
        changes = changes_table(
            evaluation.changes,
            lambda a: "does not fit" if a.saves_at_least is None else percent(a.saves_at_least),
        )
        yield Group("one decision of the best plan put into this one, alone", changes)


def _distance(document: PlanDocument, evaluation: Evaluation) -> Lines:
    best, above = evaluation.best, evaluation.above_best
    if best is None:
        return
    target = TARGETS[best.instance.search.target].name
    if best.step_time_ns is None or above is None:
        yield "best plan", f"{best.status} for {target}: none to compare with"
        return
    slower = "slower" if document.minimize == "step_time" else "dearer"
    distance = f"{percent(above)} {slower} than it" if above > 0 else "no better plan was found"
    if evaluation.above_bound is not None:
        than = "than any plan" if above > 0 else "than any"
        distance += f"; at most {percent(evaluation.above_bound)} {slower} {than}"
    yield "best plan", f"{time_text(best.step_time_ns / 1e9)}, {best.status} for {target}"
    yield "distance", distance
    saving = next(iter(evaluation.changes), None)  # which saves most
    if saving is not None and (saving.saves_at_least or 0.0) > 0:
        saved = percent(saving.saves_at_least or 0.0)
        yield "most brings", f"{saving.change}, alone: {saved} saved"
    if evaluation.settings:
        yield "change first", "  ".join(evaluation.settings)


def evaluation_json(document: PlanDocument, evaluation: Evaluation) -> dict[str, object]:
    """The same as data; memory by pipeline stage and replica."""
    best, config = evaluation.best, document.planned
    memory = ("node", "gpus", "memory_bytes", "memory_limit_bytes")
    return {
        "step_time_s": document.step_time_s,
        "fits": not evaluation.broken,
        "broken": list(evaluation.broken),
        "config": config.model_dump(mode="json"),
        "node_order": list(document.node_order),
        "memory": [
            {"replica": r, "stage": k, **stage.model_dump(mode="json", include={*memory})}
            for r, replica in enumerate(document.replicas)
            for k, stage in enumerate(replica.stages[: config.pp])
        ],
        "best": best
        and {
            "status": best.status,
            "target": best.instance.search.target,
            "step_time_s": None if best.step_time_ns is None else best.step_time_ns / 1e9,
            **fields_of(evaluation, "above_best", "above_bound"),
        },
        "changes": answers_json(evaluation.changes),
        "settings": list(evaluation.settings),
    }


# Plans to measure


def shortlist_text(best: Result, plans: Shortlist) -> Parts:
    """What to measure, a line per plan, and what it was chosen from."""
    if not plans.listed:
        return [f"no plan ({best.status})"]
    table = table_of(
        list(enumerate(plans.listed, 1)),
        {"job": lambda row: str(row[0]), "configuration": lambda row: one_line(row[1].plan.config)},
        {
            "predicted step": lambda row: time_text(seconds(row[1].step_time_ns)),
            "behind the first": lambda row: percent(row[1].behind),
            "chance to be the fastest": lambda row: f"{100 * row[1].chance:.0f} %",
        },
    )
    reach = percent(plans.margin)
    seen = f"{plans.candidates} configurations within {reach} of the best prediction"
    cut = "" if plans.complete else "; the search ended before it had seen all"
    proved = "" if best.status is Status.OPTIMAL else "not "
    notes = [
        ("from", seen + cut),
        ("first", f"{proved}proved to be the best prediction"),
        ("chosen", "together they most likely hold the fastest; plans alike share errors"),
    ]
    return [table, Labelled(notes)]


def shortlist_json(plans: Shortlist) -> dict[str, object]:
    """The same as data; shares of 1, steps in s."""
    return {
        **fields_of(plans, "candidates", "complete", "margin"),
        "plans": [
            {
                "config": listed.plan.config.model_dump(mode="json"),
                "step_time_s": seconds(listed.step_time_ns),
                **fields_of(listed, "behind", "chance", "gain"),
            }
            for listed in plans.listed
        ],
    }
