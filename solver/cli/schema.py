"""`schema`: the JSON schema of instance files, for editors."""

import json

import typer


def schema_command() -> None:
    """Print the JSON schema of instance files."""
    from formulations.instance.schema import instance_json_schema

    typer.echo(json.dumps(instance_json_schema(), indent=2))
