"""The launch target: what a user states must be what it can run, what he does not is narrowed."""

from collections.abc import Iterator

from formulations.errors import InstanceError, joined
from formulations.instance.positions import Place
from formulations.instance.quantities import shown
from formulations.instance.schema import SearchFile, WorkloadFile
from formulations.instance.target import (
    RULES,
    TARGET_NAMES,
    Rule,
    Target,
    launchers,
    least_zero,
    trainers,
    untrained,
)
from formulations.instance.workload import OptimizerState, Workload

#: In place of a rule for `zero`, see `least_zero`.
_DISTRIBUTED = Rule((1,), "whose optimizer with states in bf16 is distributed")


def narrowed(written: SearchFile, state: OptimizerState) -> SearchFile:
    """The choices with those defaults alone that the target can run; what is stated stays."""
    found = {
        field: rule.kept(getattr(written, field))
        for field, rule in _rules(written, state)
        if field not in written.model_fields_set
    }
    return written.model_copy(update=found)


def check_target(written: SearchFile, state: OptimizerState, place: Place) -> None:
    """Raises InstanceError for all stated values that the target cannot run."""
    errors = [
        error
        for field, rule in _rules(written, state)
        if field in written.model_fields_set
        for error in _refused(written, field, rule, place.at(field))
    ]
    if errors:
        raise joined(errors)


def check_trained(target: Target, workload: Workload, place: Place) -> None:
    """Raises InstanceError for all of a workload that the target cannot train."""
    errors = []
    for field, value, rule in untrained(target, workload):
        words = " or ".join(map(str, rule.allowed))
        others = " or ".join(trainers(field, value))
        written = field in WorkloadFile.model_fields
        at, found = (place.at(field), value) if written else (place, f"{field}: {value}")
        text = f"{found}, with the target {TARGET_NAMES[target]}, {rule.reason}"
        errors.append(at.error(text, f"{words}, or search.target: {others}"))
    if errors:
        raise joined(errors)


def _rules(written: SearchFile, state: OptimizerState) -> Iterator[tuple[str, Rule]]:
    """The fields of `search` that the target has rules for.

    FlagScale recomputes as Megatron-LM does where all stages are alike.
    """
    target, alike = written.target, written.recompute_per == "plan"
    for field, rule in RULES[target].items():
        free = target == "flagscale" and field == "recompute" and alike
        if field in SearchFile.model_fields and not free:
            odd = field == "zero" and least_zero(target, state)
            yield field, _DISTRIBUTED if odd else rule


def _refused(written: SearchFile, field: str, rule: Rule, place: Place) -> Iterator[InstanceError]:
    value, target = getattr(written, field), written.target
    for i, one in enumerate(value if isinstance(value, list) else [value]):
        if one not in rule.allowed:
            name = TARGET_NAMES[target]
            found = f"{_text(one)}, with the target {name}, {rule.reason}"
            allowed = " or ".join(map(_text, rule.allowed))
            able = launchers(field, one)
            if rule is _DISTRIBUTED:
                able = [other for other in able if not least_zero(other, "bf16")]
            others = " or ".join(able)
            yield place.listed(i).error(found, f"{allowed}, or search.target: {others}")


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown(value)
