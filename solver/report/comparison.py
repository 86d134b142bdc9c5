"""Methods side by side, as a table for people and as data."""

from rich.console import RenderableType

from formulations.plan import Shape
from solver.comparison import Comparison, Finding
from solver.report.degrees import tensor_text
from solver.report.layout import labelled, table
from solver.report.quantities import counted, money, percent, significant, time_text

_HOUR_NS = 3600e9


def _worth(comparison: Comparison, objective: float | None) -> str:
    """An objective as a time, as all of a column are, or as money if that is minimised."""
    if objective is None:
        return "-"
    if comparison.instance.objective.minimize == "step_time":
        longest = max(comparison.objective or 0.0, comparison.bound or 0.0)
        return time_text(objective / 1e9, longest / 1e9)
    return money(objective / _HOUR_NS)


def _shape(shape: Shape | None) -> str:
    return (
        f"{tensor_text(shape.degrees_used)} x {shape.dp} x {shape.pp}, {shape.micro_batch}"
        if shape
        else "-"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _row(comparison: Comparison, finding: Finding) -> tuple[str, ...]:
    stopped = finding.termination in ("time_limit", "interrupted")
    return (
        finding.method,
        f"{finding.status}, {finding.termination.replace('_', ' ')}"
        if stopped
        else str(finding.status),
        _shape(finding.shape),
        _worth(comparison, finding.objective),
        _worth(comparison, finding.bound),
        _share(finding.gap),
        _share(comparison.above(finding)),
        significant(finding.runtime_s, 3),
    )


def _verdict(comparison: Comparison) -> str:
    clashes = comparison.contradictions
    if clashes:
        return f"{counted(len(clashes), 'contradiction')}: one of the methods is wrong"
    proofs = sum(finding.bound is not None for finding in comparison.findings)
    if not proofs:
        return "nothing to contradict: no method proved a bound"
    number = "is 1" if proofs == 1 else f"are {proofs}"
    return f"no plan is below a proved bound, of which there {number}"


def comparison_text(comparison: Comparison) -> list[RenderableType]:
    """The findings, one line per method, and whether they agree."""
    worth = "step time" if comparison.instance.objective.minimize == "step_time" else "money"
    numbers = (worth, "lower bound", "gap", "above best bound", "seconds")
    rows = [_row(comparison, finding) for finding in comparison.findings]
    lines = [("verdict", _verdict(comparison))]
    lines += [("", clash) for clash in comparison.contradictions]
    texts = ("method", "status", "shape tp x dp x pp, b")
    return [table(texts, numbers, rows), "", labelled(lines)]


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """The same as data. objective, lower_bound: in `unit`, s or USD per step."""
    by_time = comparison.instance.objective.minimize == "step_time"
    scale = 1e9 if by_time else _HOUR_NS

    def scaled(value: float | None) -> float | None:
        return None if value is None else value / scale

    return {
        "instance": comparison.instance.name,
        "minimize": comparison.instance.objective.minimize,
        "unit": "s" if by_time else "USD",
        "objective": scaled(comparison.objective),
        "lower_bound": scaled(comparison.bound),
        "methods": [
            {
                "method": one.method,
                "status": one.status,
                "termination": one.termination,
                "shape": one.shape and one.shape.model_dump(mode="json"),
                "step_time_s": None if one.step_time_ns is None else one.step_time_ns / 1e9,
                "objective": scaled(one.objective),
                "lower_bound": scaled(one.bound),
                "gap": one.gap,
                "above_best_bound": comparison.above(one),
                "runtime_s": one.runtime_s,
            }
            for one in comparison.findings
        ],
        "contradictions": list(comparison.contradictions),
    }
