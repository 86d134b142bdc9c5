"""Instance files: the one place where YAML is read, and the way from a path to an `Instance`."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import cast

import yaml
from pydantic import ValidationError

from formulations.errors import InstanceError
from formulations.instance.cluster import GpuType
from formulations.instance.family import MOST_MEMBERS, Family
from formulations.instance.fleet_space import check_fleets
from formulations.instance.gpu_catalogue import gpus_of, links_of
from formulations.instance.input_limits import (
    MOST_TEXT,
    MOST_WRITTEN_BYTES,
    MOST_WRITTEN_VALUES,
    check_extent,
    printable,
)
from formulations.instance.instance import Instance
from formulations.instance.overlap import FrameworksFile
from formulations.instance.positions import Document, Mark, Node, Part, Place
from formulations.instance.resolve import WrittenProfile, resolve
from formulations.instance.resolve_cluster import Catalogue
from formulations.instance.resolve_lengths import read_classes
from formulations.instance.schema import InstanceFile, ProfileFile
from formulations.instance.schema_cluster import CountRange
from formulations.instance.text_files import line_and_column, read_text
from formulations.instance.validation import validated

_FOLDER = "catalogue"
_ALLOWED = "the path of an instance file, such as instances/hetero_small.yaml"


def load_instance(path: Path, *, fleets: bool = False) -> Instance:
    """The instance of a YAML file. Raises InstanceError, one line with file:line:column.

    fleets: for what fleets cannot keep to, too.
    """
    return parse_instance(read_text(path, _ALLOWED), str(path), path.parent, fleets=fleets)


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


def parse_instance(text: str, name: str, folder: Path, *, fleets: bool = False) -> Instance:
    """The instance of YAML text; `name` stands for the file in errors, paths start in `folder`."""
    written, place = _written(text, name)
    for j, group in enumerate(written.cluster.groups):
        if isinstance(group.nodes, CountRange):
            where = place.at("cluster", "groups", j, "nodes")
            raise where.error("a range", "one number; pareto takes ranges")
    instance = _resolved(written, place, folder)
    if fleets:
        check_fleets(instance, place)
    return instance


def _written(text: str, name: str) -> tuple[InstanceFile, Place]:
    document = parse_document(text, name)
    return validated(InstanceFile, document), Place(document)


def _resolved(written: InstanceFile, place: Place, folder: Path) -> Instance:
    profile = _profile(written.profile, place.at("profile"), folder)
    lengths = read_classes(written.lengths, place.at("lengths"), folder)
    return resolve(written, place, profile, lengths, catalogue(), folder)


def check_profile(text: str, name: str) -> None:
    """Returns if the YAML text is a profile; InstanceError if not."""
    validated(ProfileFile, parse_document(text, name))


def gpu_catalogue() -> Mapping[str, GpuType]:
    """GPU types with sourced figures, by name."""
    return catalogue().gpus


@cache
def catalogue() -> Catalogue:
    """Everything that instance files may refer to by name."""
    links = links_of(_resource("links.yaml"))
    gpus = gpus_of(_resource("gpus.yaml"), links)
    workloads = cast("Mapping[str, object]", read_yaml_resource("workloads.yaml"))
    overlap = validated(FrameworksFile, _resource("overlap.yaml")).overlap
    return Catalogue(gpus=gpus, links=links, workloads=workloads, overlap=overlap)


def read_yaml_resource(name: str) -> object:
    """Plain values of a YAML file of the catalogue, such as workloads.yaml."""
    return _resource(name).value


def _resource(name: str) -> Document:
    file = resources.files("formulations.instance").joinpath(_FOLDER, name)
    return parse_document(file.read_text(encoding="utf-8"), f"{_FOLDER}/{name}")


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


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, where 1e9 is a number, as in YAML 1.2."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """Value of a node; one such as the date 2001-99-99 or !!bool x is an error with a place."""
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
            unfit = f"not a value of the kind {node.tag.rpartition(':')[2]}"
            problem = str(error).partition(";")[0] if isinstance(error, ValueError) else unfit
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_document(text: str, name: str) -> Document:
    """Values and positions of YAML text. Raises InstanceError for syntax and repeated keys."""
    if len(text) > MOST_WRITTEN_BYTES:
        raise InstanceError(name, "more than 1 MiB", "a YAML file of at most that size")
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            raise InstanceError(f"{name}:1:1", "an empty file", "a mapping of fields")
        check_extent(name, _num_values(root, name, (), {}), MOST_WRITTEN_VALUES)
        value = loader.construct_document(root)
        return Document(name, value, _positions(root, loader, {}))
    except yaml.reader.ReaderError as error:
        where = f"{name}:{line_and_column(text[: error.position])}"
        found = f"the character {chr(error.character)!r}"
        raise InstanceError(where, found, "printable text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        found = ", ".join(filter(None, [error.context, error.problem])) or "a syntax error"
        raise InstanceError(where, found, "valid YAML") from None
    except RecursionError:
        raise InstanceError(f"{name}:1:1", "too many nested levels", "at most some 100") from None


def _num_values(
    node: yaml.Node, name: str, above: tuple[yaml.Node, ...], known: dict[yaml.Node, int]
) -> int:
    """Values in a node, with aliases and merge keys written out.

    Raises InstanceError for a repeated key, a text that is too long, and an alias of what contains
    it. `above`: the nodes that contain this one. `known`: what was counted already (aliases).
    """
    if node in above:
        found = "a value that contains itself"
        raise InstanceError(_where(node, name), found, "aliases of other values")
    if node not in known:
        known[node] = 1 + sum(
            _num_values(inner, name, (*above, node), known) for inner in _inner(node, name)
        )
    return known[node]


def _inner(node: yaml.Node, name: str) -> Iterator[yaml.Node]:
    """Entries of a list, values of a mapping; the same errors."""
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise InstanceError(_where(key, name), "a key of several parts", "a name or number")
            _check_length(key, name)
            if key.value in first_lines:
                where = f"{_where(key, name)} {printable(key.value)}"
                found = f"repeated; it stands in line {first_lines[key.value]} too"
                raise InstanceError(where, found, "every field once")
            first_lines[key.value] = key.start_mark.line + 1
            yield value
    else:
        _check_length(node, name)


def _check_length(node: yaml.Node, name: str) -> None:
    if len(node.value) > MOST_TEXT:
        found = f"a text of {len(node.value):,} characters"
        raise InstanceError(_where(node, name), found, f"at most {MOST_TEXT:,}")


def _positions(node: yaml.Node, loader: _Loader, done: dict[yaml.Node, Node]) -> Node:
    """Positions of a node and of all it contains; merge keys are already flattened."""
    if node not in done:
        done[node] = _new_positions(node, loader, done)
    return done[node]


def _new_positions(node: yaml.Node, loader: _Loader, done: dict[yaml.Node, Node]) -> Node:
    mark = _mark(node)
    if isinstance(node, yaml.SequenceNode):
        entries: dict[Part, Node] = {
            i: _positions(entry, loader, done) for i, entry in enumerate(node.value)
        }
        return Node(mark, is_list=True, children=entries)
    if not isinstance(node, yaml.MappingNode):
        return Node(mark)
    children: dict[Part, Node] = {}
    key_marks: dict[Part, Mark] = {}
    for key_node, value_node in node.value:
        key = cast("Part", loader.construct_object(key_node, deep=True))
        is_empty = isinstance(value_node, yaml.ScalarNode) and value_node.value == ""
        key_marks[key] = _mark(key_node)
        children[key] = Node(key_marks[key]) if is_empty else _positions(value_node, loader, done)
    return Node(mark, children=children, key_marks=key_marks)


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _where(node: yaml.Node, name: str) -> str:
    mark = _mark(node)
    return f"{name}:{mark.line}:{mark.column}"
