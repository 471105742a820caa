"""`penstock new`: a small project to begin with. Neighbour: `projects`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.errors import PermanentError
from penstock_operator.cli.faults import EXIT_INVALID, file_faults
from penstock_operator.projects.making import TEMPLATES, make_project

_FIRST = {"kafka": "python send.py && "}
"""What has to be done before a template's topology has something to read."""


@click.command()
@click.argument("name")
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="count",
    show_default=True,
    help="count: a processor with state. windows: by event time, without code. join: of two inputs. "
    "kafka: from one topic into another.",
)
def new(name: str, template: str) -> None:
    """Make a small project in a new folder NAME: a topology that runs, its code, input, and test.

    The test needs pytest, and neither Java nor Redis.
    """
    with file_faults(Path(name), "written"):
        try:
            written = make_project(name, template, Path())
        except PermanentError as error:
            click.echo(f"penstock: {error}", err=True)
            sys.exit(EXIT_INVALID)
    click.echo(f"{name}: {', '.join(map(str, written))}")
    click.echo("Next:")
    for command in (
        f"cd {name}",
        "python -m pytest",
        f"{_FIRST.get(template, '')}penstock run topology.yaml",
    ):
        click.echo(f"  {command}")
