"""From a written workload, by name, by `config.json` or by sizes, to layers with their costs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from formulations.errors import InstanceError
from formulations.instance.huggingface import sizes_from_config
from formulations.instance.positions import Place
from formulations.instance.schema import WorkloadFile
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import build_workload
from formulations.instance.workload import Workload
from formulations.instance.workload_catalogue import CatalogueEntry

_GRADIENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
_ORIGINS = ("catalogue", "huggingface", "sizes")


@dataclass(frozen=True)
class _Origin:
    """Sizes, and what the user may override."""

    sizes: TransformerSizes
    name: str
    source: str
    sequence_length: int | None = None
    global_batch: int | None = None


def resolve_workload(
    written: WorkloadFile, place: Place, workloads: Mapping[str, object], folder: Path
) -> tuple[TransformerSizes, Workload]:
    """Sizes and workload; paths are relative to `folder`.

    Raises InstanceError for none or several origins, an unknown name, an unreadable or unsupported
    config.json, and a sequence length or batch that is stated nowhere or does not fit.
    """
    origin = _origin(written, place, workloads, folder)
    length = written.sequence_length or origin.sequence_length
    batch = written.global_batch or origin.global_batch
    if length is None:
        raise place.at("sequence_length").error("missing", "tokens per sequence, such as 2048")
    if batch is None:
        raise place.at("global_batch").error("missing", "sequences per step, such as 256")
    try:
        workload = build_workload(
            origin.sizes,
            name=written.name or origin.name,
            source=written.source or origin.source,
            sequence_length=length,
            global_batch=batch,
            precision=written.precision,
            gradient_bytes=_GRADIENT_BYTES[written.gradient_precision],
            flash_attention=written.flash_attention,
        )
    except InstanceError as error:
        raise place.at("sequence_length").error(error.found, error.allowed) from None
    return origin.sizes, workload


def read_config(path: Path, place: Place | None = None) -> Mapping[str, object]:
    """The parsed config.json. Raises InstanceError, at `place` if the file cannot be read."""
    try:
        config = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        if place is None:
            raise InstanceError(str(path), reason, "the path of a config.json") from None
        allowed = "the path of a config.json from this file's folder"
        raise place.error(f"cannot read {path}: {reason}", allowed) from None
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is not UTF-8"
        raise InstanceError(str(path), found, "a JSON file in UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"{path}:{error.lineno}:{error.colno}"
        raise InstanceError(where, error.msg, "valid JSON") from None
    except (ValueError, RecursionError) as error:
        found = str(error).partition(";")[0]
        raise InstanceError(f"{path}:1:1", found, "a config.json of usual size") from None
    if not isinstance(config, dict):
        found = f"a {type(config).__name__}"
        raise InstanceError(f"{path}:1:1", found, "an object with a model_type")
    return config


def _origin(
    written: WorkloadFile, place: Place, workloads: Mapping[str, object], folder: Path
) -> _Origin:
    given = [name for name in _ORIGINS if getattr(written, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or f"none of {', '.join(_ORIGINS)}"
        raise place.error(found, f"exactly one of {', '.join(_ORIGINS)}")
    if written.sizes is not None:
        return _Origin(written.sizes, "transformer", "sizes given in the instance")
    if written.huggingface is not None:
        path = folder / written.huggingface
        name = path.resolve().parent.name if path.stem == "config" else path.stem
        return _Origin(_sizes_in(path, place.at("huggingface")), name, str(path))
    return _from_catalogue(written.catalogue or "", place.at("catalogue"), workloads)


def _sizes_in(path: Path, place: Place) -> TransformerSizes:
    """Sizes of a config.json; errors about one of its keys carry the key's line and column."""
    config = read_config(path, place)
    try:
        return sizes_from_config(config, str(path))
    except InstanceError as error:
        key = error.where.removeprefix(str(path)).strip()
        before, found, _ = path.read_text(encoding="utf-8-sig").partition(f'"{key}"')
        if not found:
            raise
        position = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
        raise InstanceError(f"{path}:{position} {key}", error.found, error.allowed) from None


def _from_catalogue(name: str, place: Place, workloads: Mapping[str, object]) -> _Origin:
    if name not in workloads:
        raise place.unknown("workload", name, workloads)
    entry = CatalogueEntry.model_validate(workloads[name])
    return _Origin(entry.sizes, name, entry.source, entry.sequence_length, entry.global_batch)
