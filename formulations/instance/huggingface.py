"""From a Hugging Face `config.json` to the sizes of a transformer.

`catalogue/config_json.yaml` says, by model type, which field states which of our sizes, and what
the configuration class takes for a field that is missing. A library reads the fields that its class
knows and ignores the others, so experts under a dense model type are another model than the one
that it builds. A field that is not counted is refused where its name speaks of sizes, parts or
numbers of parts, unless it is known to change neither parameters nor FLOPs, or says that there is
none (null, false, 0, empty). Other model types are counted from the library's model where it is
installed (`formulations.instance.huggingface_model`).

What counts as the model is what `architectures` names, with its language head; other heads are
refused by name. Of BERT the base model counts too, and where nothing is named: training adds
its pre-training head (see `formulations.instance.transformer`). T5 v1.1 has a head of its own, as
published (`tie_word_embeddings: false`; transformers 5 ties it all the same). The multi-token
prediction modules of DeepSeek-V3, Kimi K2 and GLM-4.5 are trained, but not part of the published
count, as the library leaves them out; so are expert balancing terms, which no gradient trains.
"""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from formulations.errors import InstanceError
from formulations.instance.documents import Place, json_document, read_text, resource
from formulations.instance.record import Record, printable, shown
from formulations.instance.sizes import TransformerSizes
from formulations.instance.validation import found_and_allowed


@dataclass(frozen=True)
class ModelType:
    """What the table says of a model type: `catalogue/config_json.yaml` explains the columns."""

    defaults: dict[str, object]
    sizes: dict[str, Any]
    only: dict[str, list[object]] = field(default_factory=dict)
    aliases: dict[str, list[str]] = field(default_factory=dict)
    harmless: list[str] = field(default_factory=list)
    architectures: list[str] = field(default_factory=list)

    @property
    def fields(self) -> set[str]:
        """All that is read, under all names."""
        return {*self.defaults, *(name for names in self.aliases.values() for name in names)}


@cache
def model_types() -> dict[str, ModelType]:
    """The table, by model type."""
    return {name: ModelType(**columns) for name, columns in _table()["types"].items()}


def _table() -> Any:
    return resource("config_json.yaml").value


#: How names of models with a causal language head end.
CAUSAL_NAMES = ("ForCausalLM", "LMHeadModel")
_MOST = 10**9
_ATTENTION_KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class Config:
    """The fields of a config.json, and where they stand by the path of their keys."""

    fields: Mapping[str, Any]
    where: Callable[[tuple[str, ...]], str]

    def error(self, key: str | None, found: str, allowed: str) -> InstanceError:
        """The error to raise for a field, or for the whole file."""
        return InstanceError(self.where(() if key is None else (key,)), found, allowed)

    @property
    def type(self) -> ModelType:
        """The table of its model type. Raises InstanceError for one that is not in the table."""
        types, model_type = model_types(), self.fields.get("model_type")
        if isinstance(model_type, str) and model_type in types:
            return types[model_type]
        hint = spelling_of(model_type, list(types))
        problem = repr(model_type) + hint if "model_type" in self.fields else "missing"
        others = "with the optional extra `transformers` those of that library"
        raise self.error("model_type", problem, f"{', '.join(types)}; {others}")

    def value(self, key: str) -> object:
        """The value under any of the key's names, or the default of its configuration class."""
        names = (key, *self.type.aliases.get(key, ()))
        given = (self.fields[name] for name in names if name in self.fields)
        return next(given, self.type.defaults[key])

    def refuse(self, key: str, allowed: str) -> InstanceError:
        """The error to raise for the key."""
        return self.error(key, repr(self.value(key)), allowed)

    def integer(self, key: str, least: int) -> int:
        """A whole number."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise self.refuse(key, f"a whole number from {least} to {_MOST}")
        return value

    def rotary(self) -> dict[str, object]:
        """What one of two objects says of rotary positions; transformers 5 writes the second."""
        stated: dict[str, object] = {}
        for key in ("rope_scaling", "rope_parameters"):
            value = self.value(key)
            if not isinstance(value, dict | None):
                raise self.refuse(key, "an object or null")
            stated |= value or {}
        return {"rope_type": stated.pop("type", "default")} | stated

    def dropout(self, keys: list[str]) -> bool:
        """Whether any of the rates is above 0; all of them are checked."""
        for key in keys:
            rate = self.value(key)
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
                raise self.refuse(key, "a number from 0 to below 1")
        return any(map(self.value, keys))

    def window(self, count: int) -> dict[str, object] | None:
        """The sliding window, and which of so many blocks have it; None for them: all."""
        tokens = self.value("sliding_window")
        if "use_sliding_window" in self.type.defaults and not self.value("use_sliding_window"):
            tokens = None
        blocks: list[int] | None = None
        match self.fields["model_type"]:  # where `layer_types` says nothing
            case "qwen2" | "qwen3":  # all but the first
                blocks = [*range(count)][self.integer("max_window_layers", least=0) :]
            case "gpt_oss" | "gemma2":  # every second, from the first on
                blocks = [*range(0, count, 2)]
            case "gemma3_text":  # all but every sixth
                period = self.integer("sliding_window_pattern", least=1)
                blocks = [block for block in range(count) if (block + 1) % period]
        if blocks is not None and (kinds := self.value("layer_types")) is not None:
            allowed = _ATTENTION_KINDS if tokens else _ATTENTION_KINDS[:1]
            fits = isinstance(kinds, list) and len(kinds) == count
            if not isinstance(kinds, list) or not fits or any(k not in allowed for k in kinds):
                raise self.refuse("layer_types", f"a list of {count}, each {' or '.join(allowed)}")
            blocks = [i for i, kind in enumerate(kinds) if kind == "sliding_attention"]
        return None if tokens is None or blocks == [] else {"tokens": tokens, "layers": blocks}

    @property
    def architecture(self) -> str | None:
        """The first name under `architectures`. Raises InstanceError for what is no such list."""
        names = self.fields.get("architectures")
        if names is None or names == []:
            return None
        if not isinstance(names, list) or not isinstance(names[0], str):
            allowed = "a list of names, such as LlamaForCausalLM"
            raise self.error("architectures", repr(names)[:60], allowed)
        return names[0]

    def foreign_fields(self, fine: Collection[str]) -> list[str]:
        """Those that may describe another model than is counted; fine: those that do not."""
        size_words, harmless = _pattern("size_words"), _pattern("harmless_names")

        def is_of_size(key: str) -> bool:
            words = re.sub(r"([a-z])([A-Z])", r"\1_\2", key).lower().split("_")
            return any(map(size_words.fullmatch, words)) and not harmless.fullmatch(key)

        stated = (key for key, value in self.fields.items() if value and key not in fine)
        return list(filter(is_of_size, stated))

    def foreign(self, key: str) -> InstanceError:
        """The error to raise for such a field."""
        types = [name for name, table in model_types().items() if key in table.fields]
        having = f"a model_type with it ({', '.join(types)}), or " if types else ""
        problem = f"which model_type {self.fields['model_type']} does not have"
        allowed = f"{having}no such field, if it changes neither parameters nor FLOPs"
        return self.error(key, f"{shown(self.fields[key])}, {problem}", allowed)


@cache
def _pattern(key: str) -> re.Pattern[str]:
    return re.compile("|".join(_table()[key].split()))


def read_config(path: Path, place: Place | None = None) -> Config:
    """The fields of a config.json; `place`: where another file names it.

    Raises InstanceError for a file that is none.
    """
    allowed = "the path of a config.json" + (" from this file's folder" if place else "")
    document = json_document(read_text(path, allowed, place), str(path))
    if not isinstance(document.value, dict):
        found = shown(document.value)
        raise InstanceError(document.where(()), found, "an object with a model_type")
    return Config(document.value, partial(document.where, key=True))


def config_name(path: Path) -> str:
    """Name of the model: of the file, or of its folder if it is called config.json."""
    return printable(path.resolve().parent.name if path.stem == "config" else path.stem)


def sizes_from_config(config: Config) -> TransformerSizes:
    """Sizes of the model that a parsed `config.json` describes.

    Raises InstanceError for an unknown model type, a value of the wrong kind or out of range,
    sizes that do not fit together, and fields that may describe another model.
    """
    table, fields, architecture = config.type, config.fields, config.architecture
    for key, others in table.aliases.items():  # two names of one field agree
        first, *further = [name for name in (key, *others) if name in fields] or [key]
        for name in further:
            if fields[name] != fields[first]:
                problem = f"{shown(fields[name])} beside {first}: {shown(fields[first])}"
                raise config.error(name, problem, "the same value")
    for key in config.foreign_fields({*table.fields, *table.harmless}):
        raise config.foreign(key)
    named = architecture in table.architectures
    causal = not table.architectures and (architecture or "").endswith(CAUSAL_NAMES)
    if architecture is not None and not named and not causal:
        ends = f"a name that ends in {' or '.join(CAUSAL_NAMES)}"
        allowed = ", ".join(table.architectures) or ends
        raise config.error("architectures", architecture, allowed)
    for key, values in table.only.items():  # variants whose costs are not known
        if config.value(key) not in values:
            raise config.refuse(key, " or ".join(map(repr, values)))
    stated = _values(config, table.sizes)
    if fields["model_type"] == "bert":
        # A masked language model has no pooler; without a name it is the base model.
        stated["pooler"] = architecture != "BertForMaskedLM"
        stated["published_head"] = architecture not in (None, "BertModel")
    if fields["model_type"] == "t5":
        activation = str(stated["activation"])
        stated["gated_ffn"] = activation.startswith("gated-")
        stated["activation"] = activation.removeprefix("gated-")
        stated["decoder_layers"] = stated["decoder_layers"] or stated["layers"]
    sizes = _validated(stated, config)
    if "window" in table.sizes:
        stated["window"] = config.window(sizes.layers)
        sizes = _validated(stated, config)
    return sizes


def _validated(values: Mapping[str, object], config: Config) -> TransformerSizes:
    try:
        return TransformerSizes.model_validate(values)
    except ValidationError as failure:
        error = failure.errors()[0]
        key: Any = config.type.sizes
        for name in error["loc"]:
            key = key.get(name) if isinstance(key, dict) else key
        found, allowed = found_and_allowed(error, error["loc"], TransformerSizes, written=False)
        stated = key.removesuffix(_OR_NULL) if isinstance(key, str) else None
        raise config.error(stated, found, allowed) from None


_CONSTANT = ("norm", "scores")  #: sizes of which the table has the value
#: Sizes that nothing is counted by where they are null.
_NOT_COUNTED = (
    *("ffn_size", "activation", "norm_epsilon", "rotary_base", "rotary_share", "rotary_scaling"),
    *("scores", "normalized", "scale", "groups", "groups_per_token"),
)
_OR_NULL = " or null"  #: behind a field that may be
#: Fields that stand alone or among what else is said of rotary positions.
_ROTARY = ("rope_theta", "partial_rotary_factor")


def _values(config: Config, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of the fields of a record; sizes: which of its own fields state them."""
    values: dict[str, Any] = {}
    for name, source in sizes.items():
        if isinstance(source, bool) or name in _CONSTANT:
            values[name] = source
        elif isinstance(source, list):
            values[name] = config.dropout(source)
        elif isinstance(source, dict):
            values[name] = _values(config, source)
        elif source in _ROTARY:
            values[name] = config.rotary().get(source, config.value(source))
        elif name == "rotary_scaling":
            scaling = {key: n for key, n in config.rotary().items() if key not in _ROTARY}
            values[name] = None if scaling["rope_type"] == "default" else scaling
        elif name != "window":
            key = source.removesuffix(_OR_NULL)
            values[name] = config.value(key)
            if values[name] is None and key == source:
                raise config.refuse(key, "what is not null")
    return values


def config_from_sizes(sizes: TransformerSizes) -> dict[str, object] | None:
    """A config.json that reads as these sizes; None where no type of decoders has them.

    Of the first type in the table that fits; what is not known has its defaults.
    """
    if sizes.moe is None or sizes.moe.dense_first_layers:
        sizes = sizes.but(ffn_size=sizes.dense_ffn_size)
    for name, table in model_types().items():
        written = {"model_type": name, **_written(sizes, table)}
        with suppress(InstanceError):
            read = sizes_from_config(Config(written, lambda path: ".".join(path)))
            if not table.architectures and _states(read, sizes):
                return written
    return None


def _written(sizes: TransformerSizes, table: ModelType) -> dict[str, object]:
    """The fields of a type that state sizes; `_values` reads them."""
    fields: dict[str, object] = {}

    def add(record: Record | None, sources: Mapping[str, Any]) -> None:
        for name, source in sources.items():
            value = getattr(record, name, None)
            if isinstance(source, dict):
                add(value, source)
            elif isinstance(source, list):
                fields.update({} if value else dict.fromkeys(source, 0.0))
            elif isinstance(source, str) and name not in (*_CONSTANT, "window"):
                key = source.removesuffix(_OR_NULL)
                if value is not None or (key != source and name not in _NOT_COUNTED):
                    fields[key] = value

    add(sizes, table.sizes)
    window = sizes.window
    if "sliding_window" in table.defaults:
        fields["sliding_window"] = window and window.tokens
    if "use_sliding_window" in table.defaults:
        fields["use_sliding_window"] = window is not None
    if window is not None and "layer_types" in table.defaults:
        kinds = [_ATTENTION_KINDS[window.covers(block)] for block in range(sizes.layers)]
        fields["layer_types"] = kinds
    return fields


def _states(read: Record, stated: Record) -> bool:
    """Whether a record says all that another one does."""
    for name, value in stated:
        counterpart = getattr(read, name)
        if isinstance(value, Record) and isinstance(counterpart, Record):
            if not _states(counterpart, value):
                return False
        elif counterpart != value and not (value is None and name in _NOT_COUNTED):
            return False
    return True


def spelling_of(name: object, names: list[str]) -> str:
    """` (did you mean ...?)` for another spelling of a name: case, signs, doubled letters.

    No more than that: names of architectures that differ in a letter or number are unlike.
    """

    def letters(text: str) -> str:
        return re.sub(r"([a-z])\1+", r"\1", re.sub(r"[^a-z0-9]", "", text.lower()))

    same = [like for like in names if letters(like) == letters(str(name))]
    return f" (did you mean {same[0]}?)" if same else ""
