"""`schema`: the JSON schema of instance files, for editors."""

import json

from solver.cli.terminal import say


def schema_command() -> None:
    """Print the JSON schema of instance files."""
    from formulations.instance.schema import instance_json_schema

    say(json.dumps(instance_json_schema(), indent=2))
