"""The peer's own virtual environment, made by the first run that needs it.

apache-flink pins versions of what Penstock uses too (py4j, pandas, numpy, protobuf), and brings Flink itself,
0.8 GB in all: it is no dependency of the project, not even of its tests. Neighbour: `flink_side` runs what is
installed here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import machine

INSTALL_S = 900.0
_READY = "installed"


class NoFlinkError(Exception):
    """Flink cannot be had here; the message is one sentence that says why, and what would help."""


@dataclass(frozen=True, slots=True)
class Flink:
    """An installed Flink: the environment's interpreter, and the distribution's folder."""

    python: Path
    home: Path


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "penstock-bench"


def check_python(version: Sequence[int], bounds: Sequence[str]) -> None:
    """Raises NoFlinkError unless `version` is within `bounds`, both ends included, as "3.9"."""
    least, most = (tuple(int(part) for part in bound.split(".")) for bound in bounds)
    if not least <= tuple(version[:2]) <= most:
        raise NoFlinkError(
            f"The peer needs Python {bounds[0]} to {bounds[1]}, and this is {version[0]}.{version[1]}: "
            "run the bench from an environment of one of these."
        )


def install(version: str, python_bounds: Sequence[str], tell: Callable[[str], None]) -> Flink:
    """apache-flink `version`, installed now if it was not before. Raises NoFlinkError."""
    check_python(sys.version_info, python_bounds)
    if machine.description()["java"] == "none":
        raise NoFlinkError("The peer needs Java, and there is none: install a JDK or JRE, version 17.")
    folder = cache_folder() / f"flink-{version}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    if not (folder / _READY).exists():
        tell(f"installing Flink {version} into {folder}: this once, 0.9 GB, a minute or more")
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)], "no virtual environment can be made")
        wanted = f"apache-flink=={version}"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # Beam, which Flink is built on, needs a part of it that newer ones lack.
        _run([*pip, "setuptools<81", "wheel"], "setuptools cannot be installed")
        _run([*pip, wanted], f"{wanted} cannot be installed")
        (folder / _READY).touch()
    lib = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return Flink(python, lib / "site-packages" / "pyflink")


def _run(command: Sequence[str], failed: str) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoFlinkError(f"The peer is missing: {failed} ({error}).") from error
    if ran.returncode != 0:
        last = (ran.stderr.strip() or ran.stdout.strip() or "it said nothing").splitlines()[-1]
        raise NoFlinkError(
            f"The peer is missing: {failed} ({last}). It comes from the index that pip is set up for; "
            "about 0.9 GB are downloaded."
        )
