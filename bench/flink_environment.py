"""The peer Flink, in a virtual environment of its own, which the first run that needs it makes.

apache-flink pins versions of what Penstock uses too (py4j, pandas, numpy, protobuf), and brings Flink itself,
0.8 GB in all: it is no dependency of the project, not even of its tests. Neighbour: `flink_side` runs what is
installed here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from bench.peer_environment import NoPeerError, environment_folder, is_made, made


@dataclass(frozen=True, slots=True)
class Flink:
    """An installed Flink: the environment's interpreter, and the distribution's folder."""

    python: Path
    home: Path


def check_python(version: Sequence[int], bounds: Sequence[str]) -> None:
    """Raises NoPeerError unless `version` is within `bounds`, both ends included, as "3.9"."""
    least, most = (tuple(int(part) for part in bound.split(".")) for bound in bounds)
    if not least <= tuple(version[:2]) <= most:
        raise NoPeerError(
            f"The peer needs Python {bounds[0]} to {bounds[1]}, and this is {version[0]}.{version[1]}: "
            "run the bench from an environment of one of these."
        )


def install(version: str, python_bounds: Sequence[str], tell: Callable[[str], None]) -> Flink:
    """apache-flink `version`, installed now if it was not before. Raises NoPeerError."""
    check_python(sys.version_info, python_bounds)
    if machine.description()["java"] == "none":
        raise NoPeerError("The peer needs Java, and there is none: install a JDK or JRE, version 17.")
    folder = environment_folder(f"flink-{version}")
    if not is_made(folder):
        tell(f"installing Flink {version} into {folder}: this once, 0.9 GB, a minute or more")
    # Beam, which Flink is built on, needs a part of setuptools that newer ones lack.
    wanted = [["setuptools<81", "wheel"], [f"apache-flink=={version}"]]
    python = made(folder, wanted, "; about 0.9 GB are downloaded")
    lib = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return Flink(python, lib / "site-packages" / "pyflink")
