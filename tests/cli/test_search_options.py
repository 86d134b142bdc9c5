"""Options that several commands share: ranges, times, numbers of workers."""

import pytest
import typer

from solver.cli import COMMANDS, app
from solver.cli.search_options import OPTIONS, positive


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_are_finite_and_above_0(value: float) -> None:
    assert positive(None) is None
    with pytest.raises(typer.BadParameter):
        positive(value)


def test_every_option_has_its_help() -> None:
    """And nothing is said in options.toml of a parameter that no command has."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    named = dict[str, set[str]]()
    for name in COMMANDS:
        stated = [option for option in commands[name].params if option.name != "help"]
        assert all(option.help for option in stated)
        named[name] = {str(option.name) for option in stated}
    named["shared"] = set.union(*named.values())
    for name, parameters in named.items():
        assert OPTIONS[name].keys() - {"search"} <= parameters
    assert OPTIONS.keys() == {*named, "closed_by", "commands", "moved"}
