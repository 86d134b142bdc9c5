"""The launch target: what a user states must be what it can run, what he does not is narrowed."""

from formulations.instance.positions import Place
from formulations.instance.quantities import shown
from formulations.instance.schema import SearchFile
from formulations.instance.target import RULES, TARGET_NAMES, Rule, launchers


def resolve_target(written: SearchFile, place: Place) -> SearchFile:
    """The choices that the target can run: as written, defaults without those that it cannot.

    Raises InstanceError for the first stated value that it cannot run.
    """
    narrowed: dict[str, object] = {}
    for field, rule in RULES[written.target].items():
        if field not in SearchFile.model_fields or _is_free(written, field):
            continue
        value = getattr(written, field)
        if field in written.model_fields_set:
            _check(written, field, rule, place.at(field))
        elif isinstance(value, list):
            narrowed[field] = [one for one in value if one in rule.allowed]
        elif value not in rule.allowed:
            narrowed[field] = rule.allowed[0]
    return written.model_copy(update=narrowed)


def _is_free(written: SearchFile, field: str) -> bool:
    """FlagScale recomputes as Megatron-LM does where all stages are alike."""
    alike = written.recompute_per == "plan"
    return written.target == "flagscale" and field == "recompute" and alike


def _check(written: SearchFile, field: str, rule: Rule, place: Place) -> None:
    value, target = getattr(written, field), written.target
    for i, one in enumerate(value if isinstance(value, list) else [value]):
        if one not in rule.allowed:
            name = TARGET_NAMES[target]
            found = f"{_text(one)}, with the target {name}, {rule.reason}"
            allowed = " or ".join(map(_text, rule.allowed))
            others = " or ".join(launchers(field, one))
            raise place.listed(i).error(found, f"{allowed}, or search.target: {others}")


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown(value)
