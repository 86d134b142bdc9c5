"""The way from the path of an instance file to an `Instance`."""

from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from formulations.instance.documents import (
    Place,
    parse_document,
    read_text,
)
from formulations.instance.family import MOST_MEMBERS, Family
from formulations.instance.instance import Instance
from formulations.instance.profile import ProfileFile, WrittenProfile
from formulations.instance.resolve import InstanceFile, resolve
from formulations.instance.resolve_cluster import CountRange
from formulations.instance.resolve_lengths import read_classes
from formulations.instance.validation import validated

#: What a command asks of an instance besides, see `formulations.space.fleets`.
Check = Callable[[Instance, Place], None]
_ALLOWED = "the path of an instance file, such as instances/hetero_small.yaml"


def load_instance(path: Path, check: Check | None = None) -> Instance:
    """The instance of a YAML file. Raises InstanceError, one line with file:line:column.

    check: of an instance and its place in the file, raises for what else is asked of it.
    """
    return parse_instance(read_text(path, _ALLOWED), str(path), path.parent, check)


def load_family(path: Path) -> Family:
    """The instances of a YAML file whose node groups may have ranges of numbers of nodes.

    Raises InstanceError as `load_instance`.
    """
    written, place = _written(read_text(path, _ALLOWED), str(path))
    fewest = tuple(group.fewest_nodes for group in written.cluster.groups)
    instance = _resolved(written, place, path.parent)
    try:
        return Family(instance=instance, fewest=fewest)
    except ValidationError as error:
        found = str(error.errors()[0]["ctx"]["error"])
        raise place.at("cluster", "groups").error(found, f"at most {MOST_MEMBERS:,}") from None


def parse_instance(text: str, name: str, folder: Path, check: Check | None = None) -> Instance:
    """The instance of YAML text; `name` stands for the file in errors, paths start in `folder`."""
    written, place = _written(text, name)
    for j, group in enumerate(written.cluster.groups):
        if isinstance(group.nodes, CountRange):
            where = place.at("cluster", "groups", j, "nodes")
            raise where.error("a range", "one number; pareto takes ranges")
    instance = _resolved(written, place, folder)
    if check is not None:
        check(instance, place)
    return instance


def _written(text: str, name: str) -> tuple[InstanceFile, Place]:
    document = parse_document(text, name)
    return validated(InstanceFile, document), Place(document)


def _resolved(written: InstanceFile, place: Place, folder: Path) -> Instance:
    profile = _profile(written.profile, place.at("profile"), folder)
    lengths = read_classes(written.lengths, place.at("lengths"), folder)
    return resolve(written, place, profile, lengths, folder)


def check_profile(text: str, name: str) -> None:
    """Returns if the YAML text is a profile; InstanceError if not."""
    validated(ProfileFile, parse_document(text, name))


def _profile(
    written: ProfileFile | str | None, place: Place, folder: Path
) -> WrittenProfile | None:
    if written is None:
        return None
    if isinstance(written, ProfileFile):
        return WrittenProfile(written, place)
    path = folder / written
    allowed = "the path of a profile from this file's folder, or the profile itself"
    document = parse_document(read_text(path, allowed, place), str(path))
    return WrittenProfile(validated(ProfileFile, document), Place(document))
