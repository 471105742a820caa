"""Virtual environments of peers that are written in Python, made by the first run that needs one.

A peer's packages are no dependency of the project, not even of its tests. Neighbours: `flink_environment`,
`peers.sides`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

INSTALL_S = 900.0
_READY = "installed"


class NoPeerError(Exception):
    """A peer cannot be had here; the message is one sentence that says why, and what would help."""


def environment_folder(name: str) -> Path:
    """Of an environment of this name for the Python of the bench."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return Path(base).expanduser() / "penstock-bench" / f"{name}-{version}"


def is_made(folder: Path) -> bool:
    return (folder / _READY).exists()


def made(folder: Path, wanted: Sequence[Sequence[str]], hint: str = "") -> Path:
    """The interpreter of an environment with what each of these calls of `pip install` brings, made now if
    it was not before. Raises NoPeerError, with `hint` at its end."""
    python = folder / "bin" / "python"
    if not is_made(folder):
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)], "no virtual environment can be made", hint)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for packages in wanted:
            _run([*pip, *packages], f"{packages[-1]} cannot be installed", hint)
        (folder / _READY).touch()
    return python


def _run(command: Sequence[str], failed: str, hint: str) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPeerError(f"The peer is missing: {failed} ({error}).") from error
    if ran.returncode != 0:
        last = (ran.stderr.strip() or ran.stdout.strip() or "it said nothing").splitlines()[-1]
        raise NoPeerError(
            f"The peer is missing: {failed} ({last}). It comes from the index that pip is set up for{hint}."
        )
