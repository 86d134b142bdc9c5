"""From a parsed file to a validated schema model, or one error line with its position."""

from collections.abc import Iterator, Mapping
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from formulations.errors import InstanceError, joined
from formulations.instance.documents import Document, Part, suggestion
from formulations.instance.record import MAPPING, TAGS, WRITTEN, Section, shown

Model = TypeVar("Model", bound=BaseModel)

#: Parts of a location that pydantic adds and that stand in no file: union tags, "of the key".
_NOT_IN_FILE = (*TAGS, "[key]")

#: pydantic's error type -> what is allowed, with values of the error's context.
_ALLOWED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    "dict_type": "a mapping",
    "unexpected_keyword_argument": "no such field",
    **dict.fromkeys(("literal_error", "enum"), "{expected}"),
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:.10g}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
}


def written_kind(fields: object) -> str | None:
    """Which kind of files that hetplan writes some JSON is; plans do not say so. None: none."""
    if not isinstance(fields, dict) or "schema_version" not in fields:
        return None
    kind = fields.get("kind", "plan")
    return kind if isinstance(kind, str) and kind.isidentifier() else None


def validated(model: type[Model], document: Document) -> Model:
    """The document as a `model`. Raises InstanceError for all unfit fields."""
    try:
        return model.model_validate(document.value, by_alias=True, by_name=False, context=WRITTEN)
    except ValidationError as error:
        raise joined(_problems(error, model, document, written=True)) from None


def problem(failure: ValidationError, model: type[BaseModel], document: Document) -> InstanceError:
    """The error to tell of a file that nobody writes by hand."""
    return next(_problems(failure, model, document, written=False))


def _problems(
    failure: ValidationError, model: type[BaseModel], document: Document, *, written: bool
) -> Iterator[InstanceError]:
    """Unknown fields first; a field that is missing beside one may just be misspelt.

    A file with several unknown fields at the top, and more of them than known ones, is of another
    kind: the first one says so.
    """
    errors = [(error, _path(error, document)) for error in failure.errors()]
    unknown = [path for error, path in errors if error["type"] == "extra_forbidden"]
    misspelt = {path[:-1] for path in unknown}
    strange = sum(len(path) == 1 for path in unknown)
    fields = document.value if isinstance(document.value, Mapping) else {}
    foreign = strange > max(1, len(fields) - strange)
    if foreign and (kind := written_kind(document.value)):
        allowed = f"one with {', '.join(_names(model, written))}"
        yield InstanceError(f"{document.name}:1:1", f"a {kind} file", allowed)
        return
    for error, path in sorted(errors, key=lambda pair: pair[0]["type"] != "extra_forbidden"):
        if error["type"] == "missing" and path[:-1] in misspelt:
            continue
        is_key = error["type"] == "extra_forbidden" or error["loc"][-1:] == ("[key]",)
        where = document.where(path, key=is_key)
        yield InstanceError(where, *found_and_allowed(error, path, model, written))
        if foreign:
            return


def _path(error: ErrorDetails, document: Document) -> tuple[Part, ...]:
    """The error's location less what pydantic adds: tags, `[key]`, index of a bare value."""
    path: tuple[Part, ...] = ()
    for part in error["loc"]:
        is_index = isinstance(part, int) and not document.has((*path, part))
        if part not in _NOT_IN_FILE and not is_index:
            path += (part,)
    return path


def found_and_allowed(
    error: ErrorDetails, path: tuple[Part, ...], model: type[BaseModel], written: bool
) -> tuple[str, str]:
    """What stands at a path of a file, and what may; written: by hand."""
    kind, context = error["type"], error.get("ctx", {})
    owner, field = _field(model, path)
    if kind == "extra_forbidden":
        names = _names(_field(model, path[:-1])[0], written)
        return f"unknown field{suggestion(path[-1], names)}", ", ".join(names)
    if kind == "missing":
        section = field and field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            return "missing", _mapping_of(section, written)
        parent = _field(model, path[:-1])[0]
        texts = parent.meanings() if issubclass(parent, Section) else {}
        return "missing", " ".join(texts.get(str(path[-1]), "a value").split()).rstrip(".")
    if kind == "refusal":
        return str(context["found"]), str(context["allowed"])
    if kind in ("model_type", "model_attributes_type"):
        name = "a name, or " if MAPPING in error["loc"] else ""
        return shown(error["input"]), name + _mapping_of(owner, written)
    if kind == "json_invalid":  # what `json` takes and pydantic does not: surrogates, 200 levels
        return str(context["error"]), "valid JSON"
    if kind == "value_error":
        return str(context["error"]), "values that fit together"
    allowed = _ALLOWED[kind].format(**context) if kind in _ALLOWED else error["msg"]
    return shown(error["input"]), allowed.replace(" 1 entries", " 1 entry")


def _names(model: type[BaseModel], written: bool) -> list[str]:
    """What the fields are called in a file: where people write it, by their aliases."""
    aliases = {name: field.validation_alias for name, field in model.model_fields.items()}
    return [str((written and alias) or name) for name, alias in aliases.items()]


def _mapping_of(model: type[BaseModel], written: bool) -> str:
    return f"a mapping with the fields {', '.join(_names(model, written))}"


def _field(
    model: type[BaseModel], path: tuple[Part, ...]
) -> tuple[type[BaseModel], FieldInfo | None]:
    """Innermost model on the path, and the field that the path ends at."""
    field = None
    for part in path:
        fields = model.model_fields
        by_name = {str(at.validation_alias or name): at for name, at in fields.items()} | fields
        field = by_name.get(part) if isinstance(part, str) else None
        if field is not None:
            model = _model_in(field.annotation) or model
    return model, field


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The one model inside an annotation such as `list[M]` or `str | M`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in inner if model is not None), None)
