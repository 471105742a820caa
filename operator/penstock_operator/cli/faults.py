"""How the command line tells what is wrong, and its exit codes; `main` says what they mean."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.manifest.faults import Fault

EXIT_FAILED = 1
EXIT_INVALID = 2
EXIT_CANNOT_RUN = 3


@contextmanager
def file_faults(path: Path, done: str) -> Iterator[None]:
    """What cannot be `done` ("read", "written") with a file ends the command with a sentence."""
    try:
        yield
    except OSError as error:
        click.echo(f"penstock: {error.filename or path} cannot be {done}: {error.strerror}.", err=True)
        sys.exit(EXIT_CANNOT_RUN)


def write_faults(manifest: Path, faults: tuple[Fault, ...]) -> None:
    """All of them, each with its place."""
    number = f"{len(faults)} faults" if len(faults) > 1 else "1 fault"
    click.echo(f"{manifest} cannot be run: {number}.", err=True)
    for fault in faults:
        click.echo(f"  {fault}", err=True)


def cannot_run(error: PenstockError) -> NoReturn:
    """End the command: what is asked for is right, and cannot be done here."""
    click.echo(f"penstock: {error}", err=True)
    sys.exit(EXIT_CANNOT_RUN)
