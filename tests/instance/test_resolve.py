"""Promises of formulations.instance.resolve: the JSON schema of instance files."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from formulations.instance.load import instance_json_schema
from formulations.units import parse_quantity

SCHEMA = instance_json_schema()


def _properties() -> Iterator[tuple[str, dict[str, Any]]]:
    for title, model in {"InstanceFile": SCHEMA, **SCHEMA["$defs"]}.items():
        for name, field in model["properties"].items():
            yield f"{title}.{name}", field


@pytest.mark.parametrize("name", [name for name, _ in _properties()])
def test_every_field_is_described(name: str) -> None:
    """An editor can say of every field, or of the model it holds, what it means."""
    field = dict(_properties())[name]
    model = SCHEMA["$defs"].get(field.get("$ref", "").removeprefix("#/$defs/"), {})
    assert field.get("description") or model.get("description"), name


def test_unknown_fields_are_forbidden() -> None:
    """An editor marks a misspelt field, as the loader does."""
    assert SCHEMA["additionalProperties"] is False
    assert all(model["additionalProperties"] is False for model in SCHEMA["$defs"].values())


def test_required_fields() -> None:
    """The least that a file must have."""
    assert SCHEMA["required"] == ["name", "workload", "cluster"]
    assert SCHEMA["$defs"]["NodeGroupFile"]["required"] == ["name", "gpu", "gpus_per_node", "nodes"]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("40 Gbit/s", True),
        ("230 GB/s", True),
        ("1e9 B/s", True),
        (" 12.5GiB/s ", True),
        ("40", False),
        ("40 GHz", False),
        ("GB/s", False),
    ],
)
def test_pattern_of_quantities_is_the_parser(text: str, fits: bool) -> None:
    """The schema's pattern takes a text exactly if the parser does."""
    pattern = SCHEMA["$defs"]["LinkFile"]["properties"]["bandwidth"]["pattern"]
    assert bool(re.search(pattern, text)) is fits
    try:
        parse_quantity(text, "bandwidth")
    except ValueError:
        assert not fits
    else:
        assert fits


def test_bare_value_or_list() -> None:
    """Search fields take one value or a list of different ones."""
    field = SCHEMA["$defs"]["SearchFile"]["properties"]["recompute"]
    bare, several = field["anyOf"]
    assert bare["enum"] == ["none", "selective", "full"]
    assert (several["type"], several["items"], several["uniqueItems"]) == ("array", bare, True)


def test_names_of_files_have_no_units() -> None:
    """What a value calls max_step_time_s is max_step_time in a file, as a text with its unit."""
    limits = SCHEMA["$defs"]["LimitsFile"]["properties"]
    assert {"framework_reserve", "max_step_time", "max_price_per_hour"} <= {*limits}
    assert "default" not in limits["framework_reserve"]
    assert limits["framework_reserve"]["examples"] == ["1 GiB"]
