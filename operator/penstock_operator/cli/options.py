"""Values of the command line's options, looked at before anything starts. Neighbour: `run`."""

from __future__ import annotations

import math
from pathlib import Path

import click

PICTURES = (".png", ".svg", ".pdf")


def seconds(_: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """A duration above 0, such as 60s or 5m, in seconds."""
    if text is None:
        return None
    from penstock.manifest.document import duration_us

    try:
        duration_s = duration_us(text) / 1e6
    except ValueError as error:
        raise click.BadParameter(f"{error}", param=parameter) from error
    if duration_s <= 0:
        raise click.BadParameter("must be longer than 0", param=parameter)
    return duration_s


def store_memory(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """An amount of memory that a store can work with, such as 512Mi or 2Gi, in bytes."""
    if text is None:
        return None
    from penstock.manifest.document import STORE_MEMORY_BYTES_MIN, memory_bytes

    try:
        size_bytes = memory_bytes(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}", param=parameter) from error
    if size_bytes < STORE_MEMORY_BYTES_MIN:
        raise click.BadParameter(
            "must be at least 16Mi: a store keeps inboxes and state in memory", param=parameter
        )
    return size_bytes


def a_number(_: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Not a nan, which a range lets through."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("is not a number", param=parameter)
    return value


def new_file(_: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """A file that is written when all else is done: its folder has to be there now."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}; make it first", param=parameter)
    return path


def picture(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """As `new_file`, of a kind that can be drawn."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise click.BadParameter(f"{path} should end in one of {', '.join(PICTURES)}", param=parameter)
    return new_file(context, parameter, path)
