"""Causal language models of Hugging Face transformers, built on the meta device to be counted.

The library builds the model of a `config.json` without memory for its weights. This needs the
optional extra `transformers`; nothing is downloaded, and no code but the library's is run.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from formulations.errors import InstanceError
from formulations.instance.counted import CountedModel
from formulations.instance.huggingface_count import counted_model
from formulations.instance.huggingface_fields import foreign_fields, refuse
from formulations.instance.huggingface_reader import CAUSAL_NAMES, named_architecture
from formulations.instance.quantities import shown

# What classes outside of this project raise for configs that they cannot build.
_REFUSALS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError)
_BAD_VALUES = (RuntimeError, TypeError, ValueError)
_MOST = 10**9
_MOST_MODULES = 10**4
_MODULE_WORDS = ("layer", "expert", "block", "depth")
_PREDICTION = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")


def library_knows(model_type: object) -> bool:
    """Whether the library is installed and has this model type."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
        return False
    from transformers import CONFIG_MAPPING

    return isinstance(model_type, str) and model_type in CONFIG_MAPPING


def counted_from_config(config: Mapping[str, object], where: str) -> CountedModel:
    """The counted model of a parsed `config.json` of a known type; `where` names it in errors.

    Raises InstanceError for values that the library refuses, fields that its class does not have
    and that may describe another model, and models that are no single stack of blocks.
    """
    _check_sizes(config, where)
    for key in _PREDICTION:
        if config.get(key):
            found = f"{shown(config[key])}, modules that the library's model leaves out"
            raise InstanceError(f"{where} {key}", found, "0, to train without them")
    model = _counted(config, where)
    for key in _undeclared(config, where):
        if model.parameters == _counted(_changed(config, key), where).parameters:
            raise refuse(config, where, key)
    return model


def _counted(config: Mapping[str, object], where: str) -> CountedModel:
    built = _library_config(config, where)
    return counted_model(_meta_model(config, built, where), built.get_text_config(), where)


def _undeclared(config: Mapping[str, object], where: str) -> list[str]:
    """Fields that may be of another model; some that a class does not declare its model reads."""
    built = _library_config(config, where)
    known = {*(field.name for field in fields(type(built))), *built.attribute_map}
    return foreign_fields(config, str(config["model_type"]), known)


def _changed(config: Mapping[str, object], key: str) -> dict[str, object]:
    """With another value of one field: twice a number, or none at all."""
    value = config[key]
    others = {name: other for name, other in config.items() if name != key}
    return others | {key: 2 * value} if type(value) is int else others


def _check_sizes(config: Mapping[str, object], where: str) -> None:
    """Bounds, in nested objects too, on what the library builds: each module takes time."""
    for key, value in config.items():
        if isinstance(value, dict):
            _check_sizes(value, where)
        most = _MOST_MODULES if any(word in key for word in _MODULE_WORDS) else _MOST
        if isinstance(value, int) and abs(value) > most:
            raise InstanceError(f"{where} {key}", shown(value), f"at most {most}")


def _library_config(config: Mapping[str, object], where: str) -> Any:
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    transformers.logging.set_verbosity_error()
    values = {key: value for key, value in config.items() if key != "model_type"}
    try:
        return transformers.AutoConfig.for_model(config["model_type"], **values)
    except (*_REFUSALS, *_BAD_VALUES, StrictDataclassError) as error:
        raise _refused(where, error) from error


def _meta_model(config: Mapping[str, object], built: Any, where: str) -> Any:
    """The model on the meta device: of the architecture named, else the causal language model."""
    import torch
    import transformers

    name = named_architecture(config, where)
    own: Any = name and getattr(transformers, name, None)
    is_own = getattr(own, "config_class", None) is type(built)
    if built.is_encoder_decoder or not (is_own or built.get_text_config() is built):
        allowed = "a language model of one stack of blocks, without encoder or other towers"
        raise InstanceError(f"{where} model_type", repr(config["model_type"]), allowed)
    if name and not is_own and not name.endswith(CAUSAL_NAMES):
        allowed = f"a model of the library, or a name that ends in {' or '.join(CAUSAL_NAMES)}"
        raise InstanceError(f"{where} architectures", name, allowed)
    try:
        with torch.device("meta"):
            if is_own:
                return own(built)
            return transformers.AutoModelForCausalLM.from_config(built)
    except (*_REFUSALS, *_BAD_VALUES) as error:
        raise _refused(where, error) from error


def _refused(where: str, error: Exception) -> InstanceError:
    lines = [line.strip() for line in str(error).splitlines()]
    found = f"transformers cannot build it: {' '.join(filter(None, lines))[:200]}"
    return InstanceError(where, found, "a causal language model that the library can build")
