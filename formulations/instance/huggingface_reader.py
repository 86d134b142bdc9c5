"""Typed access to the keys of one Hugging Face `config.json`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from formulations.errors import InstanceError
from formulations.instance.huggingface_defaults import ALIASES, CLASS_DEFAULTS
from formulations.instance.sizes import WindowSizes

#: How names of models with a causal language head end.
CAUSAL_NAMES = ("ForCausalLM", "LMHeadModel")
_MOST = 10**9
_ATTENTION_KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class ConfigReader:
    """The keys of a supported model type with the defaults of its configuration class."""

    config: Mapping[str, object]
    where: str
    model_type: str

    @property
    def defaults(self) -> dict[str, object]:
        """Key -> default of every key that is read."""
        return CLASS_DEFAULTS[self.model_type]

    @property
    def architecture(self) -> str | None:
        """What the file names; None where it names nothing."""
        return named_architecture(self.config, self.where)

    def value(self, key: str) -> object:
        """The value under any of the key's names, or its default."""
        names = (key, *ALIASES.get(self.model_type, {}).get(key, ()))
        given = [self.config[name] for name in names if name in self.config]
        return given[0] if given else self.defaults[key]

    def refuse(self, key: str, allowed: str) -> InstanceError:
        """The error to raise for the key."""
        return InstanceError(f"{self.where} {key}", repr(self.value(key)), allowed)

    def integer(self, key: str, least: int = 1) -> int:
        """A whole number."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise self.refuse(key, f"a whole number from {least} to {_MOST}")
        return value

    def optional(self, key: str) -> int | None:
        """A whole number, or None."""
        return None if self.value(key) is None else self.integer(key)

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.value(key)
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def dropout(self, *keys: str) -> bool:
        """Whether any of the rates is above 0; all of them are checked."""
        return max(self._rate(key) for key in keys) > 0

    def _rate(self, key: str) -> float:
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.refuse(key, "a number from 0 to below 1")
        return value

    def only(self, key: str, *allowed: object) -> None:
        """Refuses a variant whose costs are not known here."""
        if self.value(key) not in allowed:
            raise self.refuse(key, " or ".join(map(repr, allowed)))

    def window(self, sliding: Sequence[int] | None = None) -> WindowSizes | None:
        """The sliding window; `sliding`: the blocks that have it without `layer_types`.

        None for `sliding`: all of them, and no `layer_types`.
        """
        tokens = self.optional("sliding_window")
        if "use_sliding_window" in self.defaults and not self.flag("use_sliding_window"):
            tokens = None
        blocks = None if sliding is None else self._sliding_blocks(sliding, tokens)
        if tokens is None or blocks == []:
            return None
        return WindowSizes(tokens=tokens, layers=blocks)

    def _sliding_blocks(self, default: Sequence[int], tokens: int | None) -> list[int]:
        kinds = self.value("layer_types")
        if kinds is None:
            return list(default)
        allowed = _ATTENTION_KINDS if tokens else _ATTENTION_KINDS[:1]
        count = self.integer("num_hidden_layers")
        fits = isinstance(kinds, list) and len(kinds) == count
        if not isinstance(kinds, list) or not fits or any(kind not in allowed for kind in kinds):
            raise self.refuse("layer_types", f"a list of {count}, each {' or '.join(allowed)}")
        return [i for i, kind in enumerate(kinds) if kind == "sliding_attention"]


def named_architecture(config: Mapping[str, object], where: str) -> str | None:
    """The first name under `architectures`. Raises InstanceError for what is no list of names."""
    names = config.get("architectures")
    if names is None or names == []:
        return None
    if not isinstance(names, list) or not isinstance(names[0], str):
        allowed = "a list of names, such as LlamaForCausalLM"
        raise InstanceError(f"{where} architectures", repr(names)[:60], allowed)
    return names[0]


def spelling_of(name: object, names: list[str]) -> str:
    """` (did you mean ...?)` for another spelling of a known name: case, signs, doubled letters.

    No more than that: names of architectures that differ in a letter or number are unlike.
    """
    same = [known for known in names if _letters(known) == _letters(str(name))]
    return f" (did you mean {same[0]}?)" if same else ""


def _letters(name: str) -> str:
    return re.sub(r"([a-z])\1+", r"\1", re.sub(r"[^a-z0-9]", "", name.lower()))
